//! Saying it: plans, progress and summaries, for people and for programs.
