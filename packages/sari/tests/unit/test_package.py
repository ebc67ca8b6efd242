import sari


def test_the_package_knows_its_version() -> None:
    assert sari.__version__.startswith("3.")
