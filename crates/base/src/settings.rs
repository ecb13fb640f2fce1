//! Settings: selectable behaviours, by name.
//!
//! A protocol's settings are a plain struct made by [`settings!`](crate::settings!): each field has a default
//! and a comment that says what it does and where the default comes from (a clause, or the system in which it
//! was observed). Access by name makes the same settings available to files, command lines and packet
//! scripts, without a second list.

use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;

/// A value that can be parsed from and formatted as a word.
pub trait Setting: Sized {
    /// Parses `word`; returns `None` if it is not a valid value.
    fn read(word: &str) -> Option<Self>;
    /// Formats the value as a word.
    fn show(&self) -> String;
    /// Describes the valid values, for error messages.
    fn expects() -> String;
    /// Returns the words to choose from if the setting is an enumeration, otherwise none.
    fn choices() -> &'static [&'static str] {
        &[]
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Setting for $number {
            fn read(word: &str) -> Option<Self> {
                let (digits, factor) = match word.strip_suffix(['k', 'K']) {
                    Some(digits) => (digits, 1024),
                    None => (word, 1),
                };
                digits.parse::<$number>().ok()?.checked_mul(<$number>::try_from(factor).ok()?)
            }
            fn show(&self) -> String {
                self.to_string()
            }
            fn expects() -> String {
                format!("a number from 0 to {}", <$number>::MAX)
            }
        }
    )*};
}
numbers!(u16, u32, u64, usize);

impl Setting for u8 {
    fn read(word: &str) -> Option<Self> {
        word.parse().ok()
    }
    fn show(&self) -> String {
        self.to_string()
    }
    fn expects() -> String {
        "a number from 0 to 255".into()
    }
}

impl Setting for bool {
    fn read(word: &str) -> Option<Self> {
        match word {
            "on" | "true" | "yes" => Some(true),
            "off" | "false" | "no" => Some(false),
            _ => None,
        }
    }
    fn show(&self) -> String {
        if *self { "on" } else { "off" }.into()
    }
    fn expects() -> String {
        "on or off".into()
    }
}

impl Setting for Duration {
    fn read(word: &str) -> Option<Self> {
        let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let nanoseconds: u64 = match &word[digits.len()..] {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "min" => 60_000_000_000,
            _ => return None,
        };
        Some(Duration::from_nanos(digits.parse::<u64>().ok()?.checked_mul(nanoseconds)?))
    }
    fn show(&self) -> String {
        let nanoseconds = self.as_nanos();
        for (unit, size) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
            if nanoseconds.is_multiple_of(size) {
                return format!("{}{unit}", nanoseconds / size);
            }
        }
        format!("{nanoseconds}ns")
    }
    fn expects() -> String {
        "a time such as 40ms, 2s or 10min".into()
    }
}

impl<T: Setting> Setting for Option<T> {
    fn read(word: &str) -> Option<Self> {
        if word == "none" { Some(None) } else { T::read(word).map(Some) }
    }
    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "none".into(), T::show)
    }
    fn expects() -> String {
        format!("{}, or none", T::expects())
    }
    fn choices() -> &'static [&'static str] {
        T::choices()
    }
}

/// The reason why a setting was rejected. The settings are unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SettingError {
    /// There is no setting with this name.
    Unknown {
        /// The unknown name.
        name: String,
    },
    /// The setting has been renamed.
    Renamed {
        /// The name that was given.
        name: &'static str,
        /// The setting's name.
        now: &'static str,
    },
    /// The word is not a valid value of the setting.
    Unreadable {
        /// The setting's name.
        name: &'static str,
        /// The word that was given.
        word: String,
        /// A description of the valid values.
        expects: String,
    },
}

impl core::fmt::Display for SettingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SettingError::Unknown { name } => write!(f, "no setting is called {name}"),
            SettingError::Renamed { name, now } => write!(f, "the setting {name} is now called {now}"),
            SettingError::Unreadable { name, word, expects } => {
                write!(f, "{name} cannot be {word}: write {expects}")
            }
        }
    }
}

impl core::error::Error for SettingError {}

/// Defines a struct of settings with defaults that can be read and changed by name. `renamed` lists the
/// former names of settings: using one is an error that gives the new name.
///
/// ```
/// kiban_base::settings! {
///     /// How a port behaves.
///     pub struct PortConfig {
///         /// Frames that may wait.
///         frames_max: usize = 64,
///     }
/// }
/// let mut config = PortConfig::default();
/// config.set("frames_max", "8").unwrap();
/// assert_eq!(config.frames_max, 8);
/// assert!(config.set("frames_max", "many").is_err());
/// ```
#[macro_export]
macro_rules! settings {
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[doc = $doc:literal])* $field:ident: $type:ty = $default:expr,)*
    } $(renamed { $($former:literal => $now:ident,)* })?) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $($(#[doc = $doc])* pub $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }

        impl $name {
            /// Changes a setting by its name.
            ///
            /// # Errors
            /// `SettingError` if the name is unknown or the word is not a valid value.
            pub fn set(&mut self, name: &str, word: &str) -> Result<(), $crate::SettingError> {
                match name {
                    $(stringify!($field) => {
                        self.$field = <$type as $crate::Setting>::read(word).ok_or_else(|| {
                            $crate::SettingError::Unreadable {
                                name: stringify!($field),
                                word: word.into(),
                                expects: <$type as $crate::Setting>::expects(),
                            }
                        })?;
                    })*
                    $($($former => {
                        let _is_a_setting = &self.$now;
                        return Err($crate::SettingError::Renamed { name: $former, now: stringify!($now) });
                    })*)?
                    _ => return Err($crate::SettingError::Unknown { name: name.into() }),
                }
                Ok(())
            }

            /// Returns the words to choose from for a setting. The list is empty if the setting is a number,
            /// a duration or a switch, or does not exist.
            pub fn choices(name: &str) -> &'static [&'static str] {
                match name {
                    $(stringify!($field) => <$type as $crate::Setting>::choices(),)*
                    _ => &[],
                }
            }

            /// Calls `see` with the name, value and description of every setting.
            pub fn each(&self, see: &mut dyn FnMut(&'static str, &str, &'static str)) {
                $(see(stringify!($field), &$crate::Setting::show(&self.$field), concat!($($doc),*));)*
            }
        }
    };
}

/// Defines an enum for use as a setting: lists each variant with the word that stands for it.
#[macro_export]
macro_rules! choices {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$variant_about:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_about])* $variant,)* }

        impl $crate::Setting for $name {
            fn read(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }
            fn show(&self) -> $crate::SettingWord {
                match self { $($name::$variant => $word,)* }.into()
            }
            fn expects() -> $crate::SettingWord {
                <Self as $crate::Setting>::choices().join(" or ")
            }
            fn choices() -> &'static [&'static str] {
                &[$($word),*]
            }
        }
    };
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macros make public items")]
mod tests {
    use super::*;

    choices! {
        /// A colour.
        pub enum Colour {
            /// Red.
            Red = "red",
            /// Green.
            Green = "green",
        }
    }

    settings! {
        /// One of each kind.
        pub struct OneOfEach {
            /// A switch.
            switch: bool = true,
            /// A time.
            time: Duration = Duration::from_millis(40),
            /// A size.
            size: u32 = 1 << 16,
            /// A choice.
            colour: Colour = Colour::Red,
            /// An optional size.
            perhaps: Option<u32> = None,
        }
        renamed {
            "shade" => colour,
        }
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        let mut one =
            OneOfEach { time: Duration::from_nanos(1500), perhaps: Some(3), ..OneOfEach::default() };
        let before = one.clone();
        let mut words = alloc::vec::Vec::new();
        before.each(&mut |name, word, about| {
            assert!(!about.is_empty());
            words.push((name, String::from(word)));
        });
        assert_eq!(words.len(), 5);
        one = OneOfEach::default();
        words.iter().for_each(|(name, word)| one.set(name, word).unwrap());
        assert_eq!(one, before);
    }

    #[test]
    fn invalid_values_are_rejected_and_change_nothing() {
        let mut one = OneOfEach::default();
        for (name, word) in [
            ("switch", "maybe"),
            ("time", "4"),
            ("time", "4days"),
            ("time", ""),
            ("size", "-1"),
            ("size", "4294967296"),
            ("size", "4194304k"),
            ("colour", "blue"),
            ("flavour", "sweet"),
        ] {
            assert!(one.set(name, word).is_err(), "{name} {word}");
        }
        assert_eq!(one, OneOfEach::default());
        one.set("size", "64k").unwrap();
        assert_eq!(one.size, 65_536);
        let told = one.set("colour", "blue").unwrap_err().to_string();
        assert_eq!(told, "colour cannot be blue: write red or green");
        let renamed = one.set("shade", "red").unwrap_err();
        assert_eq!(renamed, SettingError::Renamed { name: "shade", now: "colour" });
        assert_eq!(renamed.to_string(), "the setting shade is now called colour");
        assert_eq!(OneOfEach::choices("colour"), ["red", "green"]);
        assert!(["switch", "size", "flavour"].iter().all(|name| OneOfEach::choices(name).is_empty()));
    }
}
