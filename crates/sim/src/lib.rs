//! Virtual time: world, cables, harm, checkers.
