"""What the tests of CodeHub share: real parts, contract suites, twins, the simulation."""
