"""The words of a topic of texts, counted. All counts are written again after every batch.

moldau pipeline run examples/word_count.py
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import moldau.pipelines as mp

settings = mp.pipeline("word-count", settings={"bootstrap.servers": "127.0.0.1:9092"})
lines = mp.topic("lines", format=mp.text(), start="earliest")


@mp.flow()
def words(lines: DataFrame) -> DataFrame:
    return lines.select(F.explode(F.split(F.lower("value"), "[^a-z]+")).alias("word"))


@mp.flow(into=mp.topic("word.counts", key="word", compacted=True), mode="upsert")
def counts(words: DataFrame) -> DataFrame:
    return words.where("word <> ''").groupBy("word").count()


twice = mp.example(
    "words are counted regardless of case",
    given={"lines": [{"value": "The river"}, {"value": "the sea"}]},
    expect={"counts": [{"word": w, "count": n} for w, n in [("the", 2), ("river", 1), ("sea", 1)]]},
)
