"""How fast are our producers compared with confluent-kafka, aiokafka and kafka-python, in one run,
on the same node?

    python benchmarks/clients.py [--rounds 3] [--records 500000] [--peers "moldau os,apache"]

`clients_consuming.py` measures consumers.

Producing: numbered records of 100 bytes to one partition, acknowledged by all replicas, from the
creation of the producer to its last acknowledgement. The processor time of the client's process per
record is shown too; on a busy machine it is more reliable than the rate. Ratios are to
confluent-kafka; above 1 Moldau is better.
"""

import argparse

from clients_producing import Rate, latencies, rates
from kept_results import keep
from node_peers import running_peers

REFERENCE = "confluent-kafka"
LATENCY_RATE = 1_000


def show_rates(found: dict[str, Rate]) -> dict[str, dict[str, float]]:
    reference = found[REFERENCE]
    rows = {}
    print(f"  {'':20} {'records/s':>12} {'ratio':>7} {'µs cpu':>9} {'ratio':>7}")
    for name, rate in found.items():
        row = {
            "records_per_second": round(rate.per_second),
            "ratio": round(rate.per_second / reference.per_second, 2),
            "cpu_us_per_record": round(rate.cpu_us, 3),
            "cpu_ratio": round(reference.cpu_us / rate.cpu_us, 2),
        }
        rows[name] = row
        print(
            f"  {name:20} {row['records_per_second']:12,} {row['ratio']:7} "
            f"{row['cpu_us_per_record']:9} {row['cpu_ratio']:7}"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--peers", default="moldau os,apache")
    options = parser.parse_args()
    results: dict[str, object] = {}
    with running_peers(options.peers.split(",")) as peers:
        for peer in peers:
            print(f"Producing to {peer.label}")
            rows = show_rates(rates(peer.port, options.records, options.rounds))
            print(f"  Milliseconds to the acknowledgement at {LATENCY_RATE} records a second")
            times = latencies(peer.port, LATENCY_RATE, seconds=10)
            for name, row in times.items():
                print(f"  {name:20} {row}")
            results[peer.label] = {"producing": rows, "latency_ms": times}
    keep("clients", records=options.records, rounds=options.rounds, peers=results)


if __name__ == "__main__":
    main()
