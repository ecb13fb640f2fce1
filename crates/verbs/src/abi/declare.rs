//! Macros that declare C types and constants, and list them for the comparison with the headers.
//!
//! `numbers!` `alias: type { NAME = value, }` declares a C enum; with `_` for the alias, it declares
//! constants without an alias. `structs!` declares a struct or union with C's layout; `= "..."` gives the C
//! name of a type or field whose name differs here. Every type has a constant `ZERO`, whose bytes are all
//! zero: null pointers, no functions.

/// One struct or union, for the comparison.
#[cfg(test)]
pub(super) struct Layout {
    pub(super) name: &'static str,
    pub(super) bytes: usize,
    pub(super) alignment: usize,
    /// The C names and the offsets of the fields.
    pub(super) fields: &'static [(&'static str, usize)],
}

macro_rules! numbers {
    ($($alias:tt: $base:ty { $($name:ident = $value:expr),* $(,)? })*) => {
        $(
            $crate::abi::declare::alias!($alias $base);
            $(pub const $name: $base = $value;)*
        )*
        #[cfg(test)]
        pub(super) const NUMBERS: &[(&str, i128)] = &[$($((stringify!($name), $name as i128)),*),*];
    };
}

macro_rules! alias {
    (_ $base:ty) => {};
    ($alias:ident $base:ty) => {
        pub type $alias = $base;
    };
}

macro_rules! structs {
    ($(
        $(#[$about:meta])*
        $kind:ident $name:ident $(= $c_name:literal)? {
            $($(#[$of_field:meta])* $field:ident $(= $c_field:literal)?: $type:ty),* $(,)?
        }
    )*) => {
        $(
            $(#[$about])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub $kind $name {
                $($(#[$of_field])* pub $field: $type,)*
            }

            impl $name {
                pub const ZERO: $name =
                    // SAFETY: all-zero bytes are a valid value of numbers, raw pointers, optional functions
                    // and arrays of them.
                    unsafe { core::mem::zeroed() };
            }
        )*
        #[cfg(test)]
        pub(super) const LAYOUTS: &[$crate::abi::declare::Layout] = &[$(
            $crate::abi::declare::Layout {
                name: $crate::abi::declare::c_name!(
                    concat!(stringify!($kind), " ", stringify!($name)) $(, $c_name)?
                ),
                bytes: size_of::<$name>(),
                alignment: align_of::<$name>(),
                fields: &[$((
                    $crate::abi::declare::c_name!(stringify!($field) $(, $c_field)?),
                    core::mem::offset_of!($name, $field),
                )),*],
            }
        ),*];
    };
}

#[cfg(test)]
macro_rules! c_name {
    ($name:expr) => {
        $name
    };
    ($name:expr, $c_name:literal) => {
        $c_name
    };
}

pub(super) use {alias, numbers, structs};

#[cfg(test)]
pub(super) use c_name;
