//! The assembly: a communications board as a value.
