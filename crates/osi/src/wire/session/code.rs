//! Codes of SPDUs and parameters.

/// SPDU identifiers (X.225 §8.3).
pub(crate) mod si {
    pub(crate) const GT_DT: u8 = 1;
    pub(crate) const PT: u8 = 2;
    pub(crate) const NF: u8 = 8;
    pub(crate) const FN: u8 = 9;
    pub(crate) const DN: u8 = 10;
    pub(crate) const RF: u8 = 12;
    pub(crate) const CN: u8 = 13;
    pub(crate) const AC: u8 = 14;
    pub(crate) const CDO: u8 = 15;
    pub(crate) const OA: u8 = 16;
    pub(crate) const AB_AI: u8 = 25;
    pub(crate) const AA_AIA: u8 = 26;
    pub(crate) const TD: u8 = 33;
    pub(crate) const RA: u8 = 34;
    pub(crate) const MIP: u8 = 49;
    pub(crate) const MIA: u8 = 50;
    pub(crate) const RS: u8 = 53;
}

/// Codes of parameters and parameter groups (X.225 §8.3, Tables 11 to 33).
pub(crate) mod parameter {
    pub(crate) const IDENTIFIER: u8 = 1;
    pub(crate) const CONNECT_ACCEPT: u8 = 5;
    pub(crate) const CALLED_REFERENCE: u8 = 9;
    pub(crate) const CALLING_REFERENCE: u8 = 10;
    pub(crate) const COMMON_REFERENCE: u8 = 11;
    pub(crate) const ADDITIONAL: u8 = 12;
    pub(crate) const SYNC_TYPE: u8 = 15;
    pub(crate) const TOKEN_ITEM: u8 = 16;
    pub(crate) const TRANSPORT_DISCONNECT: u8 = 17;
    pub(crate) const PROTOCOL_OPTIONS: u8 = 19;
    pub(crate) const REQUIREMENTS: u8 = 20;
    pub(crate) const TSDU_SIZES: u8 = 21;
    pub(crate) const VERSION: u8 = 22;
    pub(crate) const INITIAL_SERIAL: u8 = 23;
    pub(crate) const ENCLOSURE: u8 = 25;
    pub(crate) const TOKEN_SETTING: u8 = 26;
    pub(crate) const RESYNC_TYPE: u8 = 27;
    pub(crate) const SERIAL: u8 = 42;
    pub(crate) const REFLECT: u8 = 49;
    pub(crate) const REASON: u8 = 50;
    pub(crate) const CALLING_SELECTOR: u8 = 51;
    pub(crate) const CALLED_SELECTOR: u8 = 52;
    pub(crate) const LARGE_INITIAL_SERIAL: u8 = 57;
    pub(crate) const OVERFLOW: u8 = 60;
    pub(crate) const USER_DATA: u8 = 193;
    pub(crate) const EXTENDED_USER_DATA: u8 = 194;
}
