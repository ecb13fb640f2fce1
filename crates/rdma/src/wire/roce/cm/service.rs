//! Service id resolution: which queue pair serves datagrams (IBTA volume 1 §12.11).
//!
//! ```text
//! SIDR_REQ   0 request id 32 | 4 P_Key 16 | reserved 16 | 8 service id 64 | 16 private data
//! SIDR_REP   0 request id 32 | 4 status 8 | information length 8 | reserved 16
//!            8 queue pair 24 | reserved 8 | 12 service id 64 | 20 Q_Key 32 | 24 information 576 | 96 private data
//! ```

use super::super::bth::QPN_MASK;
use super::super::mad::{MAD_DATA_BYTES, long, octets, short, word};
use super::connect::INFORMATION_BYTES;
use kiban_base::Malformed;

/// A request for the queue pair of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq {
    /// Identifies the request.
    pub request_id: u32,
    /// The partition key of the datagrams.
    pub pkey: u16,
    /// The service.
    pub service_id: u64,
    /// The consumer's.
    pub private_data: [u8; SidrReq::PRIVATE_BYTES],
}

/// The outcome of a service id resolution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The queue pair and Q_Key are valid.
    pub const VALID: SidrStatus = SidrStatus(0);
    /// The service is not supported.
    pub const NOT_SUPPORTED: SidrStatus = SidrStatus(1);
    /// The service rejects the request.
    pub const REJECTED: SidrStatus = SidrStatus(2);
    /// No queue pair is available.
    pub const NO_QP: SidrStatus = SidrStatus(3);
    /// Another port or connection manager serves it.
    pub const REDIRECT: SidrStatus = SidrStatus(4);
    /// The version is not supported.
    pub const VERSION: SidrStatus = SidrStatus(5);
}

/// The reply to a [`SidrReq`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// That of the request.
    pub request_id: u32,
    /// The outcome.
    pub status: SidrStatus,
    /// Number of valid bytes in `information`.
    pub information_bytes: u8,
    /// The queue pair that serves, 24 bits.
    pub qpn: u32,
    /// The service.
    pub service_id: u64,
    /// The Q_Key of the queue pair.
    pub qkey: u32,
    /// Additional information, as the status says.
    pub information: [u8; INFORMATION_BYTES],
    /// The consumer's.
    pub private_data: [u8; SidrRep::PRIVATE_BYTES],
}

impl SidrReq {
    /// Length of the private data in bytes.
    pub const PRIVATE_BYTES: usize = 216;

    /// Decodes the data of a MAD.
    ///
    /// # Errors
    /// None: every value is valid.
    pub fn read(bytes: &[u8; MAD_DATA_BYTES]) -> Result<SidrReq, Malformed> {
        Ok(SidrReq {
            request_id: word(bytes, 0),
            pkey: short(bytes, 4),
            service_id: long(bytes, 8),
            private_data: octets(bytes, 16),
        })
    }

    /// Writes the data of a MAD.
    pub fn write(&self, bytes: &mut [u8; MAD_DATA_BYTES]) {
        bytes.fill(0);
        bytes[..4].copy_from_slice(&self.request_id.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.pkey.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.service_id.to_be_bytes());
        bytes[16..].copy_from_slice(&self.private_data);
    }
}

impl SidrRep {
    /// Length of the private data in bytes.
    pub const PRIVATE_BYTES: usize = 136;

    /// Decodes the data of a MAD.
    ///
    /// # Errors
    /// `ParameterLength` if the information is longer than its field.
    pub fn read(bytes: &[u8; MAD_DATA_BYTES]) -> Result<SidrRep, Malformed> {
        if usize::from(bytes[5]) > INFORMATION_BYTES {
            return Err(Malformed::ParameterLength);
        }
        Ok(SidrRep {
            request_id: word(bytes, 0),
            status: SidrStatus(bytes[4]),
            information_bytes: bytes[5],
            qpn: word(bytes, 8) >> 8,
            service_id: long(bytes, 12),
            qkey: word(bytes, 20),
            information: octets(bytes, 24),
            private_data: octets(bytes, 96),
        })
    }

    /// Writes the data of a MAD. Only the low 24 bits of the queue pair number are written.
    pub fn write(&self, bytes: &mut [u8; MAD_DATA_BYTES]) {
        bytes.fill(0);
        bytes[..4].copy_from_slice(&self.request_id.to_be_bytes());
        bytes[4] = self.status.0;
        bytes[5] = self.information_bytes;
        bytes[8..12].copy_from_slice(&((self.qpn & QPN_MASK) << 8).to_be_bytes());
        bytes[12..20].copy_from_slice(&self.service_id.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.qkey.to_be_bytes());
        bytes[24..96].copy_from_slice(&self.information);
        bytes[96..].copy_from_slice(&self.private_data);
    }
}
