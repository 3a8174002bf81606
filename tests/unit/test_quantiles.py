"""Student's t and chi-squared against SciPy's."""

from __future__ import annotations

import pytest

from metrics.comparing.effects import chi2_tail, student_quantile, student_tail


def test_students_t_and_chi_squared_are_scipys() -> None:
    from scipy import stats

    for freedom in (1.0, 2.0, 3.7, 5.0, 12.0, 37.0, 1000.0, float("inf")):
        for probability in (0.5, 0.8, 0.9, 0.95, 0.975, 0.9995):
            expected = pytest.approx(stats.t.ppf(probability, freedom), abs=1e-12, rel=1e-9)
            assert student_quantile(probability, freedom) == expected
        for x in (0.0, 0.3, 1.0, 2.5, 40.0):
            assert student_tail(x, freedom) == pytest.approx(stats.t.sf(x, freedom), rel=1e-9)
        assert student_tail(float("inf"), freedom) == 0.0
    for degrees in (1, 2, 7, 30):
        for x in (0.0, 0.5, 3.0, 20.0, 100.0):
            assert chi2_tail(x, degrees) == pytest.approx(stats.chi2.sf(x, degrees), rel=1e-9)
