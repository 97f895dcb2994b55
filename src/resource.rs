//! The shared vocabulary.
