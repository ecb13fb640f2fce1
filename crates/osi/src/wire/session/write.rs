//! Encoding of SPDUs. The parameters are prepended to the user data.

use super::code::{parameter, si};
use super::items::Enclosure;
use super::spdu::{
    Abort, Accept, Connect, Enclosed, Identifier, OverflowAccept, PARAMETERS_BYTES_MAX, Refuse, Spdu,
    TsduSizes, USER_DATA_BYTES_MAX,
};
use alloc::vec::Vec;
use kiban_base::Rope;

/// Encodes the most frequent TSDU: a GIVE TOKENS without tokens, then a whole SSDU of data or a segment of
/// one.
#[inline]
pub fn data(mut data: Rope, enclosure: Option<Enclosure>) -> Rope {
    match enclosure {
        None => data.prepend(&[si::GT_DT, 0, si::GT_DT, 0]),
        Some(enclosure) => {
            data.prepend(&[si::GT_DT, 0, si::GT_DT, 3, parameter::ENCLOSURE, 1, enclosure.octet()]);
        }
    }
    data
}

/// Prepends a GIVE TOKENS without tokens to an SPDU of category 2.
pub fn with_give_tokens(mut spdu: Rope) -> Rope {
    spdu.prepend(&[si::GT_DT, 0]);
    spdu
}

impl Spdu {
    /// Returns whether the SPDU is of category 2, and so must follow a token SPDU (X.225 §6.3.7); see
    /// [`with_give_tokens`].
    pub fn needs_give_tokens(&self) -> bool {
        matches!(
            self,
            Spdu::Data(_)
                | Spdu::SyncMinor { .. }
                | Spdu::SyncMinorAck { .. }
                | Spdu::Resynchronise { .. }
                | Spdu::ResynchroniseAck { .. }
        )
    }

    /// Encodes the SPDU. For an SPDU of category 2, the result is the second part of a TSDU, otherwise the
    /// whole TSDU.
    ///
    /// # Panics
    /// If the parameters, including user data among them, are longer than [`PARAMETERS_BYTES_MAX`].
    pub fn into_rope(self) -> Rope {
        match self {
            Spdu::Connect(connect) => connect.into_rope(),
            Spdu::OverflowAccept(OverflowAccept { tsdu_sizes, versions }) => {
                let mut head = Head::new();
                head.tsdu_sizes(tsdu_sizes);
                head.put(parameter::VERSION, &[versions.0]);
                head.finish(si::OA)
            }
            Spdu::ConnectDataOverflow(data) => Head::new().finish_with(si::CDO, data),
            Spdu::Accept(accept) => accept.into_rope(),
            Spdu::Refuse(refuse) => refuse.into_rope(),
            Spdu::Finish { keep, data } => {
                let mut head = Head::new();
                if data.begins() {
                    head.put(parameter::TRANSPORT_DISCONNECT, &[u8::from(!keep)]);
                }
                head.finish_with(si::FN, data)
            }
            Spdu::Disconnect(data) => Head::new().finish_with(si::DN, data),
            Spdu::NotFinished(data) => Head::new().finish_with(si::NF, data),
            Spdu::Abort(abort) => abort.into_rope(),
            Spdu::AbortAccept => Rope::copied(&[si::AA_AIA, 0]),
            Spdu::Data(data) => Head::new().finish_before(si::GT_DT, data),
            Spdu::TypedData(data) => Head::new().finish_before(si::TD, data),
            Spdu::GiveTokens { tokens, data } => {
                let mut head = Head::new();
                if let Some(tokens) = tokens {
                    head.put(parameter::TOKEN_ITEM, &[tokens.0]);
                }
                head.finish_with(si::GT_DT, data)
            }
            Spdu::PleaseTokens { tokens, data } => {
                let mut head = Head::new();
                if let Some(tokens) = tokens {
                    head.put(parameter::TOKEN_ITEM, &[tokens.0]);
                }
                head.finish_with(si::PT, data)
            }
            Spdu::SyncMinor { explicit, serial, data } => {
                let mut head = Head::new();
                if !explicit && data.begins() {
                    head.put(parameter::SYNC_TYPE, &[1]);
                }
                head.enclosure(&data);
                head.digits(parameter::SERIAL, serial);
                head.finish_with_data(si::MIP, data.data)
            }
            Spdu::SyncMinorAck { serial, data } => {
                let mut head = Head::new();
                head.enclosure(&data);
                head.digits(parameter::SERIAL, serial);
                head.finish_with_data(si::MIA, data.data)
            }
            Spdu::Resynchronise { tokens, kind, serial, data } => {
                let mut head = Head::new();
                head.enclosure(&data);
                if let Some(kind) = kind {
                    head.put(parameter::TOKEN_SETTING, &[tokens.octet()]);
                    head.put(parameter::RESYNC_TYPE, &[kind as u8]);
                }
                head.digits(parameter::SERIAL, serial);
                head.finish_with_data(si::RS, data.data)
            }
            Spdu::ResynchroniseAck { tokens, serial, data } => {
                let mut head = Head::new();
                head.enclosure(&data);
                if serial.is_some() {
                    head.put(parameter::TOKEN_SETTING, &[tokens.octet()]);
                }
                head.digits(parameter::SERIAL, serial);
                head.finish_with_data(si::RA, data.data)
            }
            Spdu::Other(identifier) => Rope::copied(&[identifier, 0]),
        }
    }
}

impl Connect {
    fn into_rope(self) -> Rope {
        let mut head = Head::new();
        head.identifier(&self.identifier, parameter::CALLING_REFERENCE);
        let mut item = Head::new();
        item.put(parameter::PROTOCOL_OPTIONS, &[self.extended_concatenation.into()]);
        item.tsdu_sizes(self.tsdu_sizes);
        item.put(parameter::VERSION, &[self.versions.0]);
        item.digits(parameter::INITIAL_SERIAL, self.initial_serial);
        item.token_setting(self.tokens.octet());
        head.put(parameter::CONNECT_ACCEPT, &item.bytes);
        head.put(parameter::REQUIREMENTS, &self.units.0.to_be_bytes());
        head.optional(parameter::CALLING_SELECTOR, &self.calling);
        head.optional(parameter::CALLED_SELECTOR, &self.called);
        if self.overflow {
            head.put(parameter::OVERFLOW, &[1]);
        }
        match self.user_data.len() {
            ..=USER_DATA_BYTES_MAX => head.finish_with_data(si::CN, self.user_data),
            _ => head.finish_with_last(si::CN, parameter::EXTENDED_USER_DATA, self.user_data),
        }
    }
}

impl Accept {
    fn into_rope(self) -> Rope {
        let mut head = Head::new();
        if self.data.begins() {
            head.identifier(&self.identifier, parameter::CALLED_REFERENCE);
            let mut item = Head::new();
            item.put(parameter::PROTOCOL_OPTIONS, &[self.extended_concatenation.into()]);
            item.tsdu_sizes(self.tsdu_sizes);
            item.put(parameter::VERSION, &[self.versions.0]);
            item.digits(parameter::INITIAL_SERIAL, self.initial_serial);
            item.token_setting(self.tokens.octet());
            head.put(parameter::CONNECT_ACCEPT, &item.bytes);
            if !self.please.is_empty() {
                head.put(parameter::TOKEN_ITEM, &[self.please.0]);
            }
            head.put(parameter::REQUIREMENTS, &self.units.0.to_be_bytes());
        }
        head.enclosure(&self.data);
        if self.data.begins() {
            head.optional(parameter::CALLING_SELECTOR, &self.calling);
            head.optional(parameter::CALLED_SELECTOR, &self.responding);
        }
        head.finish_with_data(si::AC, self.data.data)
    }
}

impl Refuse {
    fn into_rope(self) -> Rope {
        let mut head = Head::new();
        if self.data.begins() {
            head.identifier(&self.identifier, parameter::CALLED_REFERENCE);
            head.put(parameter::TRANSPORT_DISCONNECT, &[u8::from(!self.keep)]);
            if let Some(units) = self.units {
                head.put(parameter::REQUIREMENTS, &units.0.to_be_bytes());
            }
            head.put(parameter::VERSION, &[self.versions.0]);
        }
        head.enclosure(&self.data);
        let mut data = self.data.data;
        if let Some(reason) = self.reason {
            data.prepend(&[reason.code()]);
        }
        if data.is_empty() {
            head.finish(si::RF)
        } else {
            head.finish_with_last(si::RF, parameter::REASON, data)
        }
    }
}

impl Abort {
    fn into_rope(self) -> Rope {
        let mut head = Head::new();
        if self.data.begins() {
            let octet = u8::from(!self.keep)
                | u8::from(self.user) << 1
                | u8::from(self.protocol_error) << 2
                | u8::from(self.no_reason) << 3
                | u8::from(self.restriction) << 4;
            head.put(parameter::TRANSPORT_DISCONNECT, &[octet]);
        }
        head.enclosure(&self.data);
        head.optional(parameter::REFLECT, &self.reflect);
        head.finish_with_data(si::AB_AI, self.data.data)
    }
}

/// The parameters being encoded.
struct Head {
    bytes: Vec<u8>,
}

impl Head {
    fn new() -> Head {
        Head { bytes: Vec::new() }
    }

    fn length(&mut self, length: usize) {
        match length {
            0..=254 => self.bytes.push(length as u8),
            _ => {
                let length = u16::try_from(length).expect("a length indicator has 16 bits");
                self.bytes.push(0xff);
                self.bytes.extend_from_slice(&length.to_be_bytes());
            }
        }
    }

    fn put(&mut self, code: u8, value: &[u8]) {
        self.bytes.push(code);
        self.length(value.len());
        self.bytes.extend_from_slice(value);
    }

    fn optional(&mut self, code: u8, value: &[u8]) {
        if !value.is_empty() {
            self.put(code, value);
        }
    }

    fn identifier(&mut self, identifier: &Identifier, reference: u8) {
        let mut group = Head::new();
        group.optional(reference, &identifier.user_reference);
        group.optional(parameter::COMMON_REFERENCE, &identifier.common_reference);
        group.optional(parameter::ADDITIONAL, &identifier.additional);
        self.optional(parameter::IDENTIFIER, &group.bytes);
    }

    fn tsdu_sizes(&mut self, sizes: TsduSizes) {
        if sizes != TsduSizes::default() {
            let ([i0, i1], [r0, r1]) =
                (sizes.initiator_bytes_max.to_be_bytes(), sizes.responder_bytes_max.to_be_bytes());
            self.put(parameter::TSDU_SIZES, &[i0, i1, r0, r1]);
        }
    }

    /// Encodes the Token Setting Item; the default is that the initiator has all tokens.
    fn token_setting(&mut self, octet: u8) {
        if octet != 0 {
            self.put(parameter::TOKEN_SETTING, &[octet]);
        }
    }

    fn digits(&mut self, code: u8, number: Option<u32>) {
        let Some(mut number) = number else { return };
        let mut digits = [0; 10];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.put(code, &digits[at..]);
    }

    fn enclosure(&mut self, data: &Enclosed) {
        if let Some(enclosure) = data.enclosure {
            self.put(parameter::ENCLOSURE, &[enclosure.octet()]);
        }
    }

    fn finish(self, identifier: u8) -> Rope {
        self.in_front(identifier, 0, Rope::new())
    }

    fn finish_with(mut self, identifier: u8, data: Enclosed) -> Rope {
        self.enclosure(&data);
        self.finish_with_data(identifier, data.data)
    }

    fn finish_with_data(self, identifier: u8, data: Rope) -> Rope {
        if data.is_empty() {
            self.finish(identifier)
        } else {
            self.finish_with_last(identifier, parameter::USER_DATA, data)
        }
    }

    /// Finishes the SPDU with a last parameter whose value is a rope.
    fn finish_with_last(mut self, identifier: u8, code: u8, value: Rope) -> Rope {
        self.bytes.push(code);
        self.length(value.len());
        self.in_front(identifier, value.len(), value)
    }

    /// Finishes the SPDU with user information after the parameters.
    fn finish_before(mut self, identifier: u8, data: Enclosed) -> Rope {
        self.enclosure(&data);
        self.in_front(identifier, 0, data.data)
    }

    /// Prepends SI, LI and these parameters to a rope whose first `counted` bytes also belong to the
    /// parameters.
    fn in_front(self, identifier: u8, counted: usize, mut rest: Rope) -> Rope {
        let length = self.bytes.len() + counted;
        assert!(length <= PARAMETERS_BYTES_MAX, "{length} bytes of parameters");
        rest.prepend(&self.bytes);
        let mut front = Head::new();
        front.bytes.push(identifier);
        front.length(length);
        rest.prepend(&front.bytes);
        rest
    }
}
