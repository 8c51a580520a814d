"""One test that crashes, hangs or fails costs the conformance runner that test and no other."""

import textwrap

import pytest

from conformance import supervisor

MAIN = """
    import os, threading, time, unittest, warnings

    class TestAutograd(unittest.TestCase):
        def test_passes(self):
            self.assertEqual(1 + 1, 2)

        def test_fails(self):
            raise KeyError("first line\\nsecond line")

        def test_skips(self):
            self.skipTest("no reason")

        def test_fails_in_a_subtest(self):
            with self.subTest(i=0):
                self.fail("inside")

        @unittest.expectedFailure
        def test_expected_failure(self):
            self.fail("as expected")

        @unittest.expectedFailure
        def test_unexpected_success(self):
            pass

        def test_crashes(self):
            os.abort()

        def test_exits(self):
            os._exit(3)

        def test_hangs(self):
            threading.Event().wait()

        def test_leaves_a_thread(self):
            threading.Thread(target=threading.Event().wait).start()

        def test_sets_a_filter(self):
            warnings.simplefilter("error")

        def test_warns(self):
            warnings.warn("harmless")

    class TestFixtures(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            cls.ready = True

        def test_ready(self):
            self.assertTrue(self.ready)
"""
LIFECYCLE = """
    import unittest

    class TestNodeLifecycle(unittest.TestCase):
        def test_passes(self):
            pass
"""
EXPECTED = {
    "TestAutograd.test_passes": ("passed", ""),
    "TestAutograd.test_fails": ("failed", "KeyError: 'first line\\nsecond line'"),
    "TestAutograd.test_skips": ("skipped", "no reason"),
    "TestAutograd.test_fails_in_a_subtest": ("failed", "AssertionError: inside"),
    "TestAutograd.test_expected_failure": ("passed", ""),
    "TestAutograd.test_unexpected_success": ("failed", "unexpected success of an expected failure"),
    "TestAutograd.test_crashes": ("crashed", "the process died of SIGABRT"),
    "TestAutograd.test_exits": ("crashed", "the process ended with status 3"),
    "TestAutograd.test_hangs": ("timeout", "no result after 2 s"),
    "TestAutograd.test_leaves_a_thread": ("passed", ""),
    "TestAutograd.test_sets_a_filter": ("passed", ""),
    "TestAutograd.test_warns": ("passed", ""),
    "TestFixtures.test_ready": ("passed", ""),
    "TestNodeLifecycle.test_passes": ("passed", ""),
}


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "autograd").mkdir()
    (tmp_path / "test_autograd.py").write_text(textwrap.dedent(MAIN))
    (tmp_path / "autograd" / "test_node_lifecycle.py").write_text(textwrap.dedent(LIFECYCLE))
    return supervisor.Settings(tmp_path, reference=True, timeout=2.0, log=tmp_path / "log")


def test_every_test_is_collected(settings):
    assert set(supervisor.collect(settings)) == set(EXPECTED)


def test_every_outcome_is_told_once(settings):
    told = []
    results = supervisor.run(settings, list(EXPECTED), told.append)
    assert told == results
    assert {result.test: (result.status, result.error) for result in results} == EXPECTED
    assert len(results) == len(EXPECTED)


def test_files_that_do_not_import_are_an_error(settings):
    (settings.test_dir / "test_autograd.py").write_text("import nothing_of_that_name")
    with pytest.raises(supervisor.ImportFailed):
        supervisor.collect(settings)
    assert b"nothing_of_that_name" in settings.log.read_bytes()
