"""Real data that geoskip's demo, tests and benchmarks read, with the scripts that make it and lay it out."""
