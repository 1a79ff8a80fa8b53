from __future__ import annotations

from collections import Counter

import pytest

from jobs.formats.problems import UNKNOWN_SCHEMA, ValueProblem, without_value
from jobs.formats.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.registry.failures import NotInRegistryError, RegistryUnavailableError
from jobs.registry.process_schemas import MOST_SCHEMAS, UNKNOWN_SECONDS, ProcessSchemas


def schema(number: int) -> RegistrySchema:
    return RegistrySchema("AVRO", WriterSchema(f'"schema {number}"'))


class World:
    """A registry that knows an id from some time on, and a clock that only waiting moves."""

    def __init__(self, lag: float = 10.0) -> None:
        self.now = 1000.0
        self.known_from: dict[int, float] = {}
        self.away = False
        self.asked: Counter[int] = Counter()
        self.schemas = ProcessSchemas(self.ask, lag, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def ask(self, schema_id: SchemaId) -> RegistrySchema:
        number = schema_id.number or 0
        self.asked[number] += 1
        if self.away:
            raise RegistryUnavailableError("away")
        if self.known_from.get(number, float("inf")) > self.now:
            raise NotInRegistryError("The registry does not have it: no such id")
        return schema(number)

    def unknown(self, number: int) -> ValueProblem:
        with pytest.raises(ValueProblem) as told:
            self.schemas.find(SchemaId(number))
        return told.value


def test_a_known_id_is_asked_for_once() -> None:
    world = World()
    world.known_from[5] = 0
    for _ in range(3):
        assert world.schemas.find(SchemaId(5)) == schema(5)
    assert world.asked == {5: 1}


def test_a_registry_that_lags_is_waited_for() -> None:
    world = World()
    world.known_from[5] = world.now + 4
    assert world.schemas.find(SchemaId(5)) == schema(5)
    assert 4 <= world.now - 1000 <= 6


def test_an_unknown_id_is_waited_for_once_and_remembered_for_a_minute() -> None:
    world = World()
    problem = world.unknown(5)
    assert problem.error_class == UNKNOWN_SCHEMA
    assert problem.message == ("needs the schema with id 5, found none: The registry does not have it: no such id")
    assert without_value(problem.message) == "needs the schema with id 5"
    assert world.now - 1000 == pytest.approx(10)
    asked = world.asked[5]
    assert 5 <= asked <= 15
    assert world.unknown(5).message == problem.message
    assert world.asked[5] == asked
    world.now += UNKNOWN_SECONDS
    world.known_from[5] = 0
    assert world.schemas.find(SchemaId(5)) == schema(5)


def test_many_made_up_ids_hold_up_nobody_for_long() -> None:
    world = World()
    for number in range(500):
        world.unknown(number)
    # Each was asked for, and three of them were waited for.
    assert all(world.asked[number] for number in range(500))
    assert world.now - 1000 == pytest.approx(30)


def test_a_registry_that_is_away_is_no_answer() -> None:
    world = World()
    world.away = True
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            world.schemas.find(SchemaId(5))
    world.away = False
    world.known_from[5] = 0
    assert world.schemas.find(SchemaId(5)) == schema(5)


def test_a_registry_that_goes_away_while_it_is_waited_for() -> None:
    world = World()

    def sleep(seconds: float) -> None:
        world.now += seconds
        world.away = True

    schemas = ProcessSchemas(world.ask, 10.0, clock=lambda: world.now, sleep=sleep)
    with pytest.raises(OSError, match="away"):
        schemas.find(SchemaId(5))


def test_it_keeps_a_bounded_number_the_last_used_ones() -> None:
    world = World()
    world.known_from = dict.fromkeys(range(MOST_SCHEMAS + 2), 0)
    for number in range(MOST_SCHEMAS):
        world.schemas.find(SchemaId(number))
    world.schemas.find(SchemaId(0))
    world.schemas.find(SchemaId(MOST_SCHEMAS))
    world.schemas.find(SchemaId(0))
    world.schemas.find(SchemaId(1))
    assert (world.asked[0], world.asked[1]) == (1, 2)
    assert len(world.schemas.besides({})) == MOST_SCHEMAS


def test_what_the_driver_lacks_is_told_as_long_as_it_lacks_it() -> None:
    world = World()
    world.known_from = {1: 0, 2: 0}
    world.schemas.find(SchemaId(1))
    world.schemas.find(SchemaId(2))
    told = world.schemas.besides({SchemaId(1): schema(1)})
    assert told == {SchemaId(2): schema(2)}
    assert world.schemas.besides({SchemaId(1): schema(1)}) == told
    assert world.schemas.besides({SchemaId(1): schema(1), SchemaId(2): schema(2)}) == {}
