//! VIPL: the C interface of the VI Architecture, as `libvipl.so`.
#![allow(non_snake_case, reason = "C knows calls and fields by these names")]

pub mod abi;
