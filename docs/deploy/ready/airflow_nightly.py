"""An Airflow DAG: `redline nightly` by SparkSubmitOperator, from a worker near the Spark cluster.

It requires apache-airflow-providers-apache-spark and the connection `spark_default` with the host
spark://master.example.com and the port 7077. The night has the name of the DAG run, because only
scheduled runs have a logical date. A run that is cleared continues where it stopped.

Exit code 75 (another run loads the cluster) is retried after half an hour. All other codes but 0
fail at once, among them 3 (no conclusion), 4 (a regression) and 5 (a guard): the same night again
would load the cluster and answer the same. submit.properties is the file of conf/spark, with
s3.properties for tables on S3 and the spark.authenticate.secret of the master and its workers. It
needs the mode 0600.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pendulum
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context


class RedlineOperator(SparkSubmitOperator):
    """A job of kafka-redline, which is tried again only if another run loads the cluster."""

    def execute(self, context: Context) -> None:
        """Submit the job, and fail without a retry for all exit codes but 0 and 75."""
        try:
            super().execute(context)
        except AirflowException as error:
            if "Error code is: 75." in str(error):
                raise
            raise AirflowFailException(str(error)) from error


with DAG(
    dag_id="redline_nightly",
    schedule="0 2 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
):
    RedlineOperator(
        task_id="nightly",
        spark_binary="/opt/redline/bin/spark-submit",
        properties_file="/opt/redline/submit.properties",
        py_files="/opt/redline/kafka_redline-0.1.0-py3-none-any.whl",
        application="/opt/redline/jobs/nightly.py",
        application_args=[
            "--suite=/opt/redline/suite.yaml",
            "--cluster=/opt/redline/prod.yaml",
            "--night={{ run_id | replace(':', '-') | replace('+', '-') | replace('~', '-') }}",
            "--junit=/var/lib/redline/night.xml",
            "--out=/var/lib/redline",
            "--tables=s3a://bucket/redline",
            "--yes",
        ],
        env_vars={"PYSPARK_PYTHON": "/opt/redline/bin/python"},
        name="redline nightly",
        retries=3,
        retry_delay=timedelta(minutes=30),
    )
