//! Parse arguments, run, turn the outcome into an exit code. Nothing else.

fn main() {}
