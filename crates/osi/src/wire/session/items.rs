//! Small values in SPDU parameters (X.225 §8.3): functional units, tokens, kinds and reasons.

use core::fmt;
use core::ops::BitOr;

/// A set of functional units: the Session User Requirements (X.225 §8.3.1.15).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Units(pub u16);

/// Defines the methods of a bit set and, from the names of its bits, its [`fmt::Debug`].
macro_rules! bits {
    ($set:ident, $word:ty: $($(#[$about:meta])* $name:ident = $bit:literal, $word_name:literal;)*) => {
        impl $set {
            /// The empty set.
            pub const NONE: $set = $set(0);
            $($(#[$about])* pub const $name: $set = $set(1 << $bit);)*

            /// Returns whether all of `others` are in this set.
            pub const fn has(self, others: $set) -> bool {
                self.0 & others.0 == others.0
            }

            /// Returns whether any of `others` is in this set.
            pub const fn has_any(self, others: $set) -> bool {
                self.0 & others.0 != 0
            }

            /// Returns the intersection.
            pub const fn and(self, others: $set) -> $set {
                $set(self.0 & others.0)
            }

            /// Returns the union.
            pub const fn or(self, others: $set) -> $set {
                $set(self.0 | others.0)
            }

            /// Returns this set without `others`.
            pub const fn without(self, others: $set) -> $set {
                $set(self.0 & !others.0)
            }

            /// Returns whether the set is empty.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl BitOr for $set {
            type Output = $set;
            fn bitor(self, others: $set) -> $set {
                self.or(others)
            }
        }

        impl fmt::Debug for $set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut list = f.debug_list();
                $(if self.has($set::$name) { list.entry(&format_args!($word_name)); })*
                list.finish()
            }
        }
    };
}

bits! {
    Units, u16:
    /// The users take turns to send; the data token determines whose turn it is.
    HALF_DUPLEX = 0, "half-duplex";
    /// Both users may send at any time.
    DUPLEX = 1, "duplex";
    /// Expedited data.
    EXPEDITED = 2, "expedited";
    /// Minor synchronisation points.
    MINOR_SYNCHRONISE = 3, "minor synchronise";
    /// Major synchronisation points.
    MAJOR_SYNCHRONISE = 4, "major synchronise";
    /// Return to a synchronisation point.
    RESYNCHRONISE = 5, "resynchronise";
    /// Activities.
    ACTIVITY = 6, "activity management";
    /// The release may be refused; the release token controls it.
    NEGOTIATED_RELEASE = 7, "negotiated release";
    /// Data between activities.
    CAPABILITY_DATA = 8, "capability data";
    /// Exception reports.
    EXCEPTIONS = 9, "exceptions";
    /// Data that needs no token.
    TYPED_DATA = 10, "typed data";
    /// Separate synchronisation points for each direction.
    SYMMETRIC_SYNCHRONISE = 11, "symmetric synchronise";
    /// Separation of data in resynchronisation.
    DATA_SEPARATION = 12, "data separation";
}

impl Units {
    /// The supported functional units that use serial numbers: minor synchronise and resynchronise.
    pub const SYNCHRONISE: Units = Units::MINOR_SYNCHRONISE.or(Units::RESYNCHRONISE);
}

/// A set of tokens: the Token Item of the SPDUs that give and request tokens (X.225 §8.3.5.3).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Tokens(pub u8);

bits! {
    Tokens, u8:
    /// Its holder may send data, if half-duplex was selected.
    DATA = 0, "data";
    /// Its holder may set minor synchronisation points.
    MINOR = 2, "minor";
    /// Its holder may set major synchronisation points and begin activities.
    MAJOR = 4, "major";
    /// Its holder may request release.
    RELEASE = 6, "release";
}

/// The side that gets a token.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TokenSetting {
    /// The requesting side: the initiator of the connection or of the resynchronisation.
    #[default]
    Requestor = 0,
    /// The other side.
    Acceptor = 1,
    /// The other side chooses in its answer.
    AcceptorChooses = 2,
}

/// The side of each token: the Token Setting Item (X.225 §8.3.1.14). The values for unavailable tokens are
/// ignored.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct TokenSettings {
    /// The data token.
    pub data: TokenSetting,
    /// The synchronise-minor token.
    pub minor: TokenSetting,
    /// The major/activity token.
    pub major: TokenSetting,
    /// The release token.
    pub release: TokenSetting,
}

impl TokenSettings {
    /// Encodes the octet.
    pub const fn octet(self) -> u8 {
        (self.release as u8) << 6 | (self.major as u8) << 4 | (self.minor as u8) << 2 | self.data as u8
    }

    /// Decodes an octet; the reserved value 3 leaves the choice to the acceptor.
    pub const fn of_octet(octet: u8) -> TokenSettings {
        const fn setting(bits: u8) -> TokenSetting {
            match bits & 3 {
                0 => TokenSetting::Requestor,
                1 => TokenSetting::Acceptor,
                _ => TokenSetting::AcceptorChooses,
            }
        }
        TokenSettings {
            data: setting(octet),
            minor: setting(octet >> 2),
            major: setting(octet >> 4),
            release: setting(octet >> 6),
        }
    }
}

/// The kind of resynchronisation (X.225 §8.3.24: Resync Type Item).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Resynchronisation {
    /// Returns to a synchronisation point that is not older than the last major one.
    Restart = 0,
    /// Abandons the current work, and continues with an unused serial number.
    Abandon = 1,
    /// Continues with any serial number.
    Set = 2,
}

/// The reason why a session connection is refused (X.225 §8.3.4.8: Reason Code).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefuseReason {
    /// The called user refused, without a reason.
    User,
    /// The called user refused because of temporary congestion.
    UserCongestion,
    /// The called user refused, with a reason in the user data.
    UserData,
    /// The session selector is unknown.
    SelectorUnknown,
    /// The called session user is not attached.
    UserNotAttached,
    /// The session machine is congested.
    ProviderCongestion,
    /// There is no common protocol version.
    Version,
    /// The session machine refused, without a reason.
    Provider,
    /// The session machine refused because of a restriction in its implementation.
    ProviderRestriction,
    /// Another code.
    Other(u8),
}

impl core::fmt::Display for RefuseReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            RefuseReason::User => "the session user gave no reason",
            RefuseReason::UserCongestion => "the session user is congested",
            RefuseReason::UserData => "the session user gave a reason in its data",
            RefuseReason::SelectorUnknown => "the session selector is unknown",
            RefuseReason::UserNotAttached => "no user is attached to the session selector",
            RefuseReason::ProviderCongestion => "the session layer is congested",
            RefuseReason::Version => "the session version is not supported",
            RefuseReason::Provider => "the session layer gave no reason",
            RefuseReason::ProviderRestriction => "a restriction of the session layer's implementation",
            RefuseReason::Other(code) => return write!(f, "reason code {code}"),
        })
    }
}

impl RefuseReason {
    /// Returns the code for a reason.
    pub const fn code(self) -> u8 {
        match self {
            RefuseReason::User => 0,
            RefuseReason::UserCongestion => 1,
            RefuseReason::UserData => 2,
            RefuseReason::SelectorUnknown => 129,
            RefuseReason::UserNotAttached => 130,
            RefuseReason::ProviderCongestion => 131,
            RefuseReason::Version => 132,
            RefuseReason::Provider => 133,
            RefuseReason::ProviderRestriction => 134,
            RefuseReason::Other(code) => code,
        }
    }

    /// Returns the reason for a code.
    pub const fn of_code(code: u8) -> RefuseReason {
        match code {
            0 => RefuseReason::User,
            1 => RefuseReason::UserCongestion,
            2 => RefuseReason::UserData,
            129 => RefuseReason::SelectorUnknown,
            130 => RefuseReason::UserNotAttached,
            131 => RefuseReason::ProviderCongestion,
            132 => RefuseReason::Version,
            133 => RefuseReason::Provider,
            134 => RefuseReason::ProviderRestriction,
            code => RefuseReason::Other(code),
        }
    }

    /// Returns true if the user refused, false if the session machine did.
    pub const fn is_user(self) -> bool {
        self.code() < 128
    }
}

/// Versions of the protocol (X.225 §8.3.1.9).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Versions(pub u8);

bits! {
    Versions, u8:
    /// Version 1.
    V1 = 0, "1";
    /// Version 2: user data of unlimited length.
    V2 = 1, "2";
}

/// The Enclosure Item, which says what part of a service data unit an SPDU carries (X.225 §8.3.11.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Enclosure {
    /// Whether the part begins the unit.
    pub begins: bool,
    /// Whether the part ends the unit.
    pub ends: bool,
}

impl Enclosure {
    /// Encodes the octet.
    pub const fn octet(self) -> u8 {
        self.begins as u8 | (self.ends as u8) << 1
    }

    /// Decodes an octet.
    pub const fn of_octet(octet: u8) -> Enclosure {
        Enclosure { begins: octet & 1 != 0, ends: octet & 2 != 0 }
    }
}

impl Units {
    /// The default if the Session User Requirements are absent (X.225 §8.3.1.16).
    pub const DEFAULT: Units = Units::HALF_DUPLEX
        .or(Units::MINOR_SYNCHRONISE)
        .or(Units::ACTIVITY)
        .or(Units::CAPABILITY_DATA)
        .or(Units::EXCEPTIONS);
}

impl Resynchronisation {
    /// Decodes an octet.
    pub const fn of_octet(octet: u8) -> Option<Resynchronisation> {
        match octet {
            0 => Some(Resynchronisation::Restart),
            1 => Some(Resynchronisation::Abandon),
            2 => Some(Resynchronisation::Set),
            _ => None,
        }
    }
}
