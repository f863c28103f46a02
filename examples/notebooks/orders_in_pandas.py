"""A topic as a pandas frame, and a picture of it. Cells begin with `# %%`: open it in VS Code or
Jupyter, or run it whole while `moldau demo` is up:

    python examples/notebooks/orders_in_pandas.py [BOOTSTRAP] [PICTURE]
"""

# %% Spark on this machine. Spark finds the source `moldau` automatically, without jars.
import sys

import matplotlib as mpl
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from moldau.spark import ensure_java

mpl.use("Agg")
bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
picture = sys.argv[2] if len(sys.argv) > 2 else "orders.png"

ensure_java()
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)

# %% All orders so far. Only the named columns are read.
records = (
    spark.read.format("moldau")
    .schema("value binary")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", "orders")
    .load()
)
schema = "id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP"
parsed = records.select(F.from_json(F.col("value").cast("string"), schema).alias("order"))
orders = parsed.where("order.amount IS NOT NULL").select("order.*").toPandas()
print(orders.describe())

# %% Sums, in pandas. For a large topic, aggregate with `groupBy` in Spark before `toPandas`.
by_user = orders.assign(user=orders["user"].str.lower()).groupby("user")["amount"].sum()
by_second = orders.set_index("ts").resample("1s")["amount"].sum()

# %% The picture.
import matplotlib.pyplot as plt  # noqa: E402 - after the choice of how it is drawn

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
by_user.sort_values().plot.barh(ax=left, title="amount by user")
by_second.plot(ax=right, title="amount per second")
figure.savefig(picture, dpi=110)
print(f"{len(orders)} orders of {by_user.size} users, drawn in {picture}")

# %% In a notebook, keep the session.
spark.stop()
