//! Facts about accelerators and machines.
