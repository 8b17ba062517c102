"""Money: the article's table, spot machines, marks, price files."""

from __future__ import annotations

import math
import random
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from nerfleet.errors import NerfleetError
from nerfleet.planner.cost import Offer, as_spot, expected_seconds, marked, optimal_interval, saving, why, worthwhile
from nerfleet.planner.cost_picture import cost_picture
from nerfleet.planner.prices import EXAMPLE, read_prices

HOUR = 3600.0


def offer(n_gpus: int, hours: float, price: float = 12.0, name: str = "m", machine_gpus: int = 4, trains: bool = True) -> Offer:
    machines = -(-n_gpus // machine_gpus)
    return Offer(name, "data", n_gpus, machines, price * machines, hours * HOUR, trains=trains)


def test_machines_are_rented_whole() -> None:
    offers = [offer(1, 36), offer(4, 8.5), offer(8, 4.5)]
    assert [one.cost for one in offers] == pytest.approx([432, 102, 108])
    assert [one.n_machines for one in offers] == [1, 1, 2]
    assert saving(offers[1], offers) == pytest.approx(0.764, abs=1e-3)


def test_marks() -> None:
    offers = marked([offer(1, 36), offer(4, 8.5), offer(8, 4.5), offer(4, 1, price=1.0, trains=False)])
    assert [one.marks for one in offers] == [(), ("cheapest",), ("fastest", "best value"), ()]
    assert worthwhile(offers)[0].n_gpus == 4
    words = why(offers, "USD")
    assert "Prototype" in words
    assert "Urgent: fastest: m, 8 GPUs, 4.5 h, 108.00 USD" in words


def test_optimal_interval_is_where_the_expected_time_is_least() -> None:
    for checkpoint, between in ((5.0, 6 * HOUR), (60.0, HOUR), (300.0, 2000.0)):
        best = optimal_interval(checkpoint, between)
        times = {factor: expected_seconds(HOUR, factor * best, checkpoint, between, 120.0) for factor in (0.8, 0.97, 1.0, 1.03, 1.25)}
        assert times[1.0] == pytest.approx(min(times.values()), rel=1e-3)
        assert best == pytest.approx(math.sqrt(2 * checkpoint * between), rel=0.35)  # Young
    assert optimal_interval(100.0, 10.0) == 10.0


def test_expected_time_is_that_of_a_simulated_run() -> None:
    work, interval, checkpoint, between, restart = 8 * HOUR, 900.0, 30.0, 2 * HOUR, 120.0
    random.seed(7)

    def survived(seconds: float) -> float:
        """Seconds until a stretch of so many is done without a failure in it."""
        gone = 0.0
        while True:
            failure = random.expovariate(1 / between)
            if failure >= seconds:
                return gone + seconds
            gone += failure
            while (again := random.expovariate(1 / between)) < restart:
                gone += again
            gone += restart

    runs = [sum(survived(interval + checkpoint) for _ in range(int(work / interval))) for _ in range(400)]
    assert sum(runs) / len(runs) == pytest.approx(expected_seconds(work, interval, checkpoint, between, restart), rel=0.03)


def test_spot_machines() -> None:
    spot = as_spot(offer(8, 10), 3.0, 0.05, 10.0)
    assert spot.spot
    assert spot.price_per_hour == 6.0
    assert 10 * HOUR < spot.total_seconds < 11 * HOUR
    assert 0 < spot.checkpoint_every_seconds < HOUR
    assert as_spot(offer(8, 10), 3.0, 0.0, 10.0).total_seconds == 10 * HOUR
    hopeless = as_spot(offer(8, 10), 3.0, 3600.0, 100.0)
    assert math.isinf(hopeless.total_seconds)
    assert marked([hopeless])[0].marks == ()


def test_the_example_of_prices_reads() -> None:
    prices = read_prices(EXAMPLE)
    assert (prices.currency, prices.date) == ("USD", "2025-06")
    by_name = {instance.name: instance for instance in prices.instances}
    assert by_name["g5.12xlarge"].machines(5) == 2
    assert not by_name["p3.8xlarge"].gpu.trains
    cluster = by_name["g5.12xlarge"].cluster(8)
    assert (len(cluster.hosts), cluster.hosts[0].n_cpus, cluster.network.name) == (2, 48, "40gbe")


ENTRY = "instances:\n  - name: a\n    gpu: T4\n"


@pytest.mark.parametrize(
    "text, line",
    [
        (f"{ENTRY}    price_per_hour: 0\n", "line 4, price_per_hour: 0 is out of range: give a number above 0"),
        (f"{ENTRY}    price_per_hour: -1.5\n", "line 4, price_per_hour: -1.5 is out of range"),
        (f"{ENTRY}    price_per_hour: 1\n    spot_price_per_hour: 0\n", "line 5, spot_price_per_hour: 0 is out of range"),
        (f"{ENTRY}    price_per_hour: cheap\n", "line 4, price_per_hour: 'cheap' is not a number"),
        (f"{ENTRY}    gpus: 2\n", "line 2, price_per_hour: is missing"),
        (f"{ENTRY}    price_per_hour: 1\n    gpus: 0.5\n", "line 5, gpus: 0.5 is out of range"),
        (f"{ENTRY}    price_per_hour: 1\n    gpus: 1.5\n", "line 5, gpus: 1.5 is not a whole number"),
        ("instances:\n  - name: a\n    gpu: GTX 9000\n    price_per_hour: 1\n", "line 3, gpu: 'GTX 9000' is not in the catalogue"),
        (f"{ENTRY}    price_per_hour: 1\n  - name: a\n    gpu: L4\n    price_per_hour: 1\n", "has two instances a"),
        (f"{ENTRY}   price_per_hour: 1\n", "line 4: expected <block end>"),
        ("instances:\n  - 3\n", "line 2, instances: 3 is not a set of"),
    ],
)
def test_what_is_wrong_with_prices_is_named_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(NerfleetError) as error:
        read_prices(tmp_path / "prices.yaml")
    assert line.replace("line 2, instances", "line 1, instances") in str(error.value)


def test_the_picture_shows_every_offer() -> None:
    offers = marked([offer(1, 36), offer(4, 8.5), offer(8, 4.5), as_spot(offer(4, 8.5), 3.0, 0.1, 10.0)])
    root = ElementTree.fromstring(cost_picture(offers, "USD", "a < b & c"))
    names = {"svg": "http://www.w3.org/2000/svg"}
    circles = root.findall(".//svg:circle", names)
    assert len(circles) == 5
    legend, *circles = circles
    assert legend.find("svg:title", names) is None
    assert [circle.findtext("svg:title", namespaces=names) for circle in circles][1] == "m, 4 GPUs: 8.5 h, 102.00 USD"
    x = [float(circle.attrib["cx"]) for circle in circles]
    assert x[0] > x[1] > x[2]
    assert ElementTree.fromstring(cost_picture([], "USD", "nothing")) is not None
