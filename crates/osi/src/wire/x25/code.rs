//! Names of causes (X.25 §5, Tables 20 to 22) and diagnostics (Annex E, ISO 8208 §18).

/// Causes that this implementation sends.
pub mod cause {
    /// DTE originated, in any packet.
    pub const DTE_ORIGINATED: u8 = 0x00;
    /// Clearing: number busy.
    pub const CLEAR_NUMBER_BUSY: u8 = 0x01;
    /// Clearing: invalid facility request.
    pub const CLEAR_INVALID_FACILITY: u8 = 0x03;
    /// Clearing: network congestion.
    pub const CLEAR_CONGESTION: u8 = 0x05;
    /// Clearing: out of order.
    pub const CLEAR_OUT_OF_ORDER: u8 = 0x09;
    /// Clearing: remote procedure error.
    pub const CLEAR_REMOTE_ERROR: u8 = 0x11;
    /// Clearing: local procedure error.
    pub const CLEAR_LOCAL_ERROR: u8 = 0x13;
    /// Resetting: local procedure error.
    pub const RESET_LOCAL_ERROR: u8 = 0x05;
    /// Restarting: local procedure error.
    pub const RESTART_LOCAL_ERROR: u8 = 0x01;
    /// Restarting: network operational.
    pub const RESTART_OPERATIONAL: u8 = 0x07;
}

/// Diagnostics that this implementation sends.
pub mod diagnostic {
    /// No additional information.
    pub const NONE: u8 = 0;
    /// Invalid P(S).
    pub const INVALID_P_S: u8 = 1;
    /// Invalid P(R).
    pub const INVALID_P_R: u8 = 2;
    /// Packet type invalid for state r1; the codes for r2 and r3 follow.
    pub const STATE_R1: u8 = 17;
    /// Packet type invalid for state p1; the codes for p2 to p7 follow.
    pub const STATE_P1: u8 = 20;
    /// Packet type invalid for state d1; the codes for d2 and d3 follow.
    pub const STATE_D1: u8 = 27;
    /// Unidentifiable packet.
    pub const UNIDENTIFIABLE: u8 = 33;
    /// Call on a one-way logical channel, in the wrong direction.
    pub const ONE_WAY_CHANNEL: u8 = 34;
    /// Invalid packet type on a permanent virtual circuit.
    pub const INVALID_ON_PVC: u8 = 35;
    /// Packet on an unassigned logical channel.
    pub const UNASSIGNED_CHANNEL: u8 = 36;
    /// REJ not subscribed to.
    pub const REJECT_NOT_SUBSCRIBED: u8 = 37;
    /// Packet too short.
    pub const TOO_SHORT: u8 = 38;
    /// Packet too long.
    pub const TOO_LONG: u8 = 39;
    /// Invalid general format identifier.
    pub const GENERAL_FORMAT: u8 = 40;
    /// Restart with a nonzero logical channel.
    pub const RESTART_ON_CHANNEL: u8 = 41;
    /// Packet type not compatible with a facility.
    pub const NOT_COMPATIBLE: u8 = 42;
    /// Unauthorized interrupt confirmation.
    pub const UNAUTHORIZED_CONFIRMATION: u8 = 43;
    /// Unauthorized interrupt: the previous interrupt is not confirmed yet.
    pub const UNAUTHORIZED_INTERRUPT: u8 = 44;
    /// Timer expired for a call.
    pub const CALL_TIME: u8 = 49;
    /// Timer expired for a clear.
    pub const CLEAR_TIME: u8 = 50;
    /// Timer expired for a reset.
    pub const RESET_TIME: u8 = 51;
    /// Timer expired for a restart.
    pub const RESTART_TIME: u8 = 52;
    /// Facility parameter not allowed.
    pub const FACILITY_PARAMETER: u8 = 66;
    /// Invalid called address.
    pub const CALLED_ADDRESS: u8 = 67;
    /// Invalid facility length.
    pub const FACILITY_LENGTH: u8 = 69;
    /// No logical channel available.
    pub const NO_CHANNEL: u8 = 71;
    /// Call collision.
    pub const COLLISION: u8 = 72;
    /// Inconsistent Q bit within a unit.
    pub const INCONSISTENT_QUALIFIER: u8 = 83;
    /// The timer expired while an interrupt confirmation was awaited.
    pub const INTERRUPT_TIME: u8 = 145;
    /// DTE operational.
    pub const DTE_OPERATIONAL: u8 = 161;
    /// DTE resource constraint.
    pub const DTE_RESOURCE: u8 = 163;
    /// Normal disconnection by the layer above.
    pub const NORMAL: u8 = 241;
    /// Abnormal disconnection by the layer above.
    pub const ABNORMAL: u8 = 242;
}

/// Returns the name of a clearing cause (Table 20).
pub fn clearing_cause(code: u8) -> &'static str {
    match code {
        0x00 | 0x80..=0xff => "DTE originated",
        0x01 => "number busy",
        0x03 => "invalid facility request",
        0x05 => "network congestion",
        0x09 => "out of order",
        0x0b => "access barred",
        0x0d => "not obtainable",
        0x11 => "remote procedure error",
        0x13 => "local procedure error",
        0x15 => "RPOA out of order",
        0x19 => "reverse charging acceptance not subscribed",
        0x21 => "incompatible destination",
        0x29 => "fast select acceptance not subscribed",
        0x39 => "ship absent",
        _ => "unknown cause",
    }
}

/// Returns the name of a resetting cause (Table 21).
pub fn resetting_cause(code: u8) -> &'static str {
    match code {
        0x00 | 0x80..=0xff => "DTE originated",
        0x01 => "out of order",
        0x03 => "remote procedure error",
        0x05 => "local procedure error",
        0x07 => "network congestion",
        0x09 => "remote DTE operational",
        0x0f => "network operational",
        0x11 => "incompatible destination",
        0x1d => "network out of order",
        _ => "unknown cause",
    }
}

/// Returns the name of a restarting cause (Table 22).
pub fn restarting_cause(code: u8) -> &'static str {
    match code {
        0x00 | 0x80..=0xff => "DTE originated",
        0x01 => "local procedure error",
        0x03 => "network congestion",
        0x07 => "network operational",
        0x7f => "registration or cancellation confirmed",
        _ => "unknown cause",
    }
}

/// Returns the name of a diagnostic or, if it has no name, the name of its group.
pub fn diagnostic_name(code: u8) -> &'static str {
    // Annex E: a code without a name means the same as the first code of its group.
    let named = |of: u8| DIAGNOSTICS.iter().find(|(code, _)| *code == of);
    named(code).or_else(|| named(code & 0xf0)).map_or("not assigned", |(_, name)| name)
}

const DIAGNOSTICS: [(u8, &str); 103] = [
    (0, "no additional information"),
    (1, "invalid P(S)"),
    (2, "invalid P(R)"),
    (16, "packet type invalid"),
    (17, "packet type invalid for state r1"),
    (18, "packet type invalid for state r2"),
    (19, "packet type invalid for state r3"),
    (20, "packet type invalid for state p1"),
    (21, "packet type invalid for state p2"),
    (22, "packet type invalid for state p3"),
    (23, "packet type invalid for state p4"),
    (24, "packet type invalid for state p5"),
    (25, "packet type invalid for state p6"),
    (26, "packet type invalid for state p7"),
    (27, "packet type invalid for state d1"),
    (28, "packet type invalid for state d2"),
    (29, "packet type invalid for state d3"),
    (32, "packet not allowed"),
    (33, "unidentifiable packet"),
    (34, "call on one-way logical channel"),
    (35, "invalid packet type on a permanent virtual circuit"),
    (36, "packet on unassigned logical channel"),
    (37, "REJECT not subscribed to"),
    (38, "packet too short"),
    (39, "packet too long"),
    (40, "invalid general format identifier"),
    (41, "restart or registration packet with nonzero logical channel"),
    (42, "packet type not compatible with facility"),
    (43, "unauthorized interrupt confirmation"),
    (44, "unauthorized interrupt"),
    (45, "unauthorized reject"),
    (48, "time expired"),
    (49, "time expired for incoming call"),
    (50, "time expired for clear indication"),
    (51, "time expired for reset indication"),
    (52, "time expired for restart indication"),
    (53, "time expired for call deflection"),
    (64, "call set-up, call clearing or registration problem"),
    (65, "facility or registration code not allowed"),
    (66, "facility parameter not allowed"),
    (67, "invalid called DTE address"),
    (68, "invalid calling DTE address"),
    (69, "invalid facility or registration length"),
    (70, "incoming call barred"),
    (71, "no logical channel available"),
    (72, "call collision"),
    (73, "duplicate facility requested"),
    (74, "non-zero address length"),
    (75, "non-zero facility length"),
    (76, "facility not provided when expected"),
    (77, "invalid CCITT-specified DTE facility"),
    (78, "maximum number of call redirections or deflections exceeded"),
    (80, "miscellaneous"),
    (81, "improper cause code from DTE"),
    (82, "not aligned octet"),
    (83, "inconsistent Q bit setting"),
    (84, "NUI problem"),
    (112, "international problem"),
    (113, "remote network problem"),
    (114, "international protocol problem"),
    (115, "international link out of order"),
    (116, "international link busy"),
    (117, "transit network facility problem"),
    (118, "remote network facility problem"),
    (119, "international routing problem"),
    (120, "temporary routing problem"),
    (121, "unknown called DNIC"),
    (122, "maintenance action"),
    (144, "timer expired or retransmission count surpassed"),
    (145, "timer expired or retransmission count surpassed for interrupt"),
    (146, "timer expired or retransmission count surpassed for data packet transmission"),
    (147, "timer expired or retransmission count surpassed for reject"),
    (160, "DTE-specific signals"),
    (161, "DTE operational"),
    (162, "DTE not operational"),
    (163, "DTE resource constraint"),
    (164, "fast select not subscribed"),
    (165, "invalid partially full data packet"),
    (166, "D-bit procedure not supported"),
    (167, "registration or cancellation confirmed"),
    (224, "OSI network service problem"),
    (225, "disconnection, transient condition"),
    (226, "disconnection, permanent condition"),
    (227, "connection rejection, reason unspecified, transient condition"),
    (228, "connection rejection, reason unspecified, permanent condition"),
    (229, "connection rejection, quality of service not available, transient condition"),
    (230, "connection rejection, quality of service not available, permanent condition"),
    (231, "connection rejection, NSAP unreachable, transient condition"),
    (232, "connection rejection, NSAP unreachable, permanent condition"),
    (233, "reset, reason unspecified"),
    (234, "reset, congestion"),
    (235, "connection rejection, NSAP address unknown, permanent condition"),
    (240, "higher layer initiated"),
    (241, "disconnection, normal"),
    (242, "disconnection, abnormal"),
    (243, "disconnection, incompatible information in user data"),
    (244, "connection rejection, reason unspecified, transient condition"),
    (245, "connection rejection, reason unspecified, permanent condition"),
    (246, "connection rejection, quality of service not available, transient condition"),
    (247, "connection rejection, quality of service not available, permanent condition"),
    (248, "connection rejection, incompatible information in user data"),
    (249, "connection rejection, unrecognizable protocol identifier in user data"),
    (250, "reset, user resynchronization"),
];
