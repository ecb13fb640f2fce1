//! States and events.

/// The states of Table A.2 that are reached with the supported functional units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::session) enum State {
    /// Idle, no transport connection.
    Sta01,
    /// Wait for T-CONNECT confirm.
    Sta01B,
    /// Idle, transport connected.
    Sta01C,
    /// Wait for the CONNECT DATA OVERFLOW SPDU.
    Sta01D,
    /// Wait for the ACCEPT SPDU.
    Sta02A,
    /// Wait for the OVERFLOW ACCEPT SPDU.
    Sta02B,
    /// Wait for the DISCONNECT SPDU.
    Sta03,
    /// Wait for the RESYNCHRONIZE ACK SPDU.
    Sta05A,
    /// Wait for S-CONNECT response.
    Sta08,
    /// Wait for S-RELEASE response.
    Sta09,
    /// Wait for S-RESYNCHRONIZE response.
    Sta11A,
    /// Wait for T-DISCONNECT indication.
    Sta16,
    /// Data transfer state.
    Sta713,
}

/// The incoming events of Table A.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::session) enum Event {
    SConReq,
    SConRspAccept,
    SConRspRefuse,
    SDtReq,
    STdReq,
    SGtReq,
    SPtReq,
    SSynReq,
    SSynRsp,
    SRsynReq,
    SRsynRsp,
    SRelReq,
    SRelRspAccept,
    SRelRspReject,
    SUabReq,
    TConInd,
    TConCnf,
    TDisInd,
    Tim,
    Ac,
    Cdo,
    Cn,
    Oa,
    RfNr,
    RfR,
    Dt,
    Td,
    Mia,
    Mip,
    Ra,
    Rs,
    Gt,
    Pt,
    Dn,
    FnNr,
    FnR,
    Nf,
    Aa,
    AbNr,
    AbR,
    /// An SPDU that belongs to an unsupported functional unit, or is malformed.
    Other,
}
