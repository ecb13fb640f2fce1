//! Counters of events, by name.
//!
//! Every protocol has a plain struct of `u64` fields made by [`counters!`](crate::counters!): counting is an
//! addition to a field, and `each` iterates over names and values. [`Copies`] counts copied bytes by cause.

/// Defines a struct of counters: public `u64` fields that can be read by name.
///
/// ```
/// kiban_base::counters! {
///     /// What a port saw.
///     pub struct PortCounters {
///         /// Frames that arrived.
///         frames_in,
///     }
/// }
/// let mut counters = PortCounters::default();
/// counters.frames_in += 1;
/// let mut seen = None;
/// counters.each(&mut |name, value| seen = Some((name, value)));
/// assert_eq!(seen, Some(("frames_in", 1)));
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$field_about:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$field_about])* pub $field: u64,)* }

        impl $name {
            /// Calls `see` with the name and value of every counter.
            pub fn each(&self, see: &mut dyn FnMut(&'static str, u64)) {
                $(see(stringify!($field), self.$field);)*
            }

            /// Adds the values of `other`.
            pub fn add(&mut self, other: &$name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// Bytes that were copied, by cause.
    pub struct Copies {
        /// Bytes copied from the application into payload pages.
        host_in_bytes,
        /// Bytes copied from payload pages to the application.
        host_out_bytes,
        /// Bytes copied from content pages into cells (paper \[1\]: the SAR's transfer out).
        sar_out_bytes,
        /// Bytes copied from cells into content pages (paper \[1\]: the SAR's transfer in).
        sar_in_bytes,
        /// Header bytes pulled up into a head to be read.
        header_bytes,
        /// Bytes of short payload that were packed together, so that they do not occupy whole pages.
        gather_bytes,
    }
}
