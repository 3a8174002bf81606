"""Student's t and chi-squared against SciPy's."""

from __future__ import annotations

import pytest

from metrics.comparing.effects import chi2_tail, student_quantile, student_tail

FREEDOMS = (1.0, 2.0, 3.7, 5.0, 12.0, 37.0, 1000.0, float("inf"))


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_student_is_scipys(freedom: float) -> None:
    from scipy import stats

    for probability in (0.5, 0.8, 0.9, 0.95, 0.975, 0.9995):
        expected = stats.t.ppf(probability, freedom)
        assert student_quantile(probability, freedom) == pytest.approx(
            expected, abs=1e-12, rel=1e-9
        )
    for x in (0.0, 0.3, 1.0, 2.5, 40.0):
        assert student_tail(x, freedom) == pytest.approx(stats.t.sf(x, freedom), rel=1e-9)
    assert student_tail(float("inf"), freedom) == 0.0


@pytest.mark.parametrize("freedom", [1, 2, 7, 30])
def test_chi_squared_is_scipys(freedom: int) -> None:
    from scipy import stats

    for x in (0.0, 0.5, 3.0, 20.0, 100.0):
        assert chi2_tail(x, freedom) == pytest.approx(stats.chi2.sf(x, freedom), rel=1e-9)
