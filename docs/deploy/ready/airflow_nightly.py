"""An Airflow DAG: `redline nightly` by spark-submit, on a worker that reaches the Spark cluster.

The night has the name of the DAG run, which every run has: a run that is started by hand or by an
asset has no logical date, so that `{{ ds }}` is not defined. A run that is cleared continues where
it stopped. Exit code 75 (another run loads the cluster) skips the night; 4 (a regression) and 5 (a
guard) fail it. Nothing is retried. submit.properties is that of conf/spark, with s3.properties
for tables on S3 and the spark.authenticate.secret of the master and its workers: mode 0600.
"""

from __future__ import annotations

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="redline_nightly",
    schedule="0 2 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
):
    BashOperator(
        task_id="nightly",
        bash_command=(
            "/opt/redline/bin/spark-submit --master spark://master.example.com:7077 "
            "--properties-file /opt/redline/submit.properties "
            "--py-files /opt/redline/kafka_redline-0.1.0-py3-none-any.whl "
            "/opt/redline/jobs/nightly.py --suite /opt/redline/suite.yaml "
            "--cluster /opt/redline/prod.yaml "
            "--night {{ run_id | replace(':', '-') | replace('+', '-') | replace('~', '-') }} "
            "--junit /var/lib/redline/night.xml "
            "--out /var/lib/redline --tables s3a://bucket/redline --yes"
        ),
        env={"PYSPARK_PYTHON": "/opt/redline/bin/python"},
        append_env=True,
        skip_on_exit_code=75,
        retries=0,
    )
