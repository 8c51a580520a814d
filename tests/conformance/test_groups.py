"""The data file of the conformance runner holds the tests and totals that the published table names."""

from collections import Counter

import pytest

from conformance import groups, report, supervisor

# group: (A, B, G1, G2, X)
EXPECTED = {
    "1": (27, 0, 0, 0, 0),
    "2": (34, 0, 0, 0, 1),
    "3": (14, 0, 0, 0, 0),
    "4": (39, 0, 0, 0, 1),
    "5": (12, 4, 0, 0, 2),
    "6": (38, 0, 0, 0, 0),
    "7a": (31, 1, 0, 0, 0),
    "7b": (13, 0, 0, 0, 0),
    "8": (15, 0, 0, 0, 0),
    "9": (19, 0, 0, 0, 0),
    "10": (8, 0, 0, 0, 0),
    "11": (32, 2, 0, 0, 0),
    "12": (54, 0, 0, 0, 0),
    "13": (14, 11, 0, 0, 3),
    "14": (33, 3, 0, 0, 3),
    "15": (1, 6, 0, 0, 0),
    "16a": (19, 2, 0, 0, 1),
    "16b": (13, 1, 0, 0, 0),
    "16c": (0, 9, 0, 0, 3),
    "17": (39, 21, 0, 0, 60),
    "18": (22, 1, 0, 0, 0),
    "19": (7, 0, 0, 0, 0),
    "20": (29, 4, 0, 0, 1),
    "21": (0, 15, 0, 0, 0),
    "22": (0, 8, 0, 0, 7),
    "23": (0, 0, 23, 7, 7),
    "24": (0, 0, 0, 0, 13),
}


@pytest.fixture(scope="module")
def tests():
    return groups.load_tests()


def test_totals_are_the_published_denominators(tests):
    assert len(tests) == 733
    assert groups.count(tests) == Counter(A=513, B=88, G1=23, G2=7, X=102)


def test_groups_come_in_the_published_order():
    assert list(groups.load_titles()) == list(EXPECTED)


@pytest.mark.parametrize("group", EXPECTED)
def test_group_totals(tests, group):
    counts = groups.count(tests, group)
    assert tuple(counts[kind] for kind in groups.CLASSES) == EXPECTED[group]


def test_everything_beyond_the_core_says_what_it_needs(tests):
    assert [test.id for test in tests.values() if test.kind in "BX" and not test.needs] == []


def test_deviations_name_listed_tests(tests):
    known = groups.load_deviations()
    assert set(known) <= set(tests)
    assert all(deviation.reason for deviation in known.values())


def test_scores_count_passes_only(tests):
    chosen = {test.id: test for test in tests.values() if test.group == "5"}
    one_a, one_b = (next(test.id for test in chosen.values() if test.kind == kind) for kind in "AB")
    results = [supervisor.Result(test, "skipped") for test in chosen]
    results += [supervisor.Result(one_a, "passed"), supervisor.Result(one_b, "passed")]
    *_, total = report.rows(chosen, {"5": "graph"}, results)
    assert (total.score("A"), total.score("A", "B"), total.score("G1")) == ("1/12", "2/16", "-")
