//! PPDUs as ASN.1 types.

use super::user_data::UserData;
use crate::asn1;
use crate::wire::ber::{Integer, OctetString, Oid, SequenceOf};

/// The transfer syntax of the basic encoding rules.
pub const BER: Oid = Oid::of("2.1.1");

asn1! {
    /// CP: presentation connect.
    Cp ::= SET {
        /// Normal or X.410-1984.
        mode        [0] IMPLICIT ModeSelector,
        /// Present in normal mode.
        parameters  [2] IMPLICIT CpParameters OPTIONAL,
    }

    /// The parameters of CP in normal mode.
    CpParameters ::= SEQUENCE {
        /// The versions that the initiator supports.
        version               [0] IMPLICIT Version DEFAULT Version::VERSION_1,
        /// The calling PSEL.
        calling_selector      [1] IMPLICIT OctetString OPTIONAL,
        /// The called PSEL.
        called_selector       [2] IMPLICIT OctetString OPTIONAL,
        /// The proposed contexts.
        contexts              [4] IMPLICIT SequenceOf<ContextDefinition> OPTIONAL,
        /// The default context, for values that do not name a context.
        default_context       [6] IMPLICIT DefaultContext OPTIONAL,
        /// Presentation functional units.
        requirements          [8] IMPLICIT Requirements OPTIONAL,
        /// Session functional units, if they differ from those in the session layer's parameter.
        session_requirements  [9] IMPLICIT SessionRequirements OPTIONAL,
        /// User data.
        user_data             UserData OPTIONAL,
    }

    /// CPA: presentation connect accept.
    Cpa ::= SET {
        /// Normal or X.410-1984.
        mode        [0] IMPLICIT ModeSelector,
        /// Present in normal mode.
        parameters  [2] IMPLICIT CpaParameters OPTIONAL,
    }

    /// The parameters of CPA in normal mode.
    CpaParameters ::= SEQUENCE {
        /// The selected version.
        version               [0] IMPLICIT Version DEFAULT Version::VERSION_1,
        /// The responding PSEL.
        responding_selector   [3] IMPLICIT OctetString OPTIONAL,
        /// The result for each context, in the order of the CP.
        results               [5] IMPLICIT SequenceOf<ContextResult> OPTIONAL,
        /// Presentation functional units.
        requirements          [8] IMPLICIT Requirements OPTIONAL,
        /// Session functional units, if they differ from those in the session layer's parameter.
        session_requirements  [9] IMPLICIT SessionRequirements OPTIONAL,
        /// User data.
        user_data             UserData OPTIONAL,
    }

    /// CPR: presentation connect reject.
    Cpr ::= SEQUENCE {
        /// The versions that the responder supports.
        version               [0] IMPLICIT Version DEFAULT Version::VERSION_1,
        /// The responding PSEL.
        responding_selector   [3] IMPLICIT OctetString OPTIONAL,
        /// The result for each context, in the order of the CP.
        results               [5] IMPLICIT SequenceOf<ContextResult> OPTIONAL,
        /// The result for the default context.
        default_result        [7] IMPLICIT ResultCode OPTIONAL,
        /// The reason if the provider refuses; absent if the user refuses.
        reason                [10] IMPLICIT ProviderReason OPTIONAL,
        /// User data.
        user_data             UserData OPTIONAL,
    }

    /// The contents of an abort.
    Abort ::= CHOICE {
        /// ARU.
        User      [0] IMPLICIT Aru,
        /// ARP.
        Provider  Arp,
    }

    /// ARU: abort by the user.
    Aru ::= SEQUENCE {
        /// The transfer syntax of each context in the user data.
        contexts   [0] IMPLICIT SequenceOf<ContextIdentifier> OPTIONAL,
        /// User data.
        user_data  UserData OPTIONAL,
    }

    /// ARP: abort by the provider.
    Arp ::= SEQUENCE {
        /// The reason.
        reason  [0] IMPLICIT AbortReason OPTIONAL,
        /// The event that caused it.
        event   [1] IMPLICIT Event OPTIONAL,
    }

    /// RS and RSA: resynchronise, and its acknowledgement.
    Resynchronise ::= SEQUENCE {
        /// The context set after the resynchronisation; present only with context management.
        contexts   [0] IMPLICIT SequenceOf<ContextIdentifier> OPTIONAL,
        /// User data.
        user_data  UserData OPTIONAL,
    }

    ModeSelector ::= SET {
        /// The mode.
        mode  [0] IMPLICIT Mode,
    }

    Mode          ::= INTEGER { X410_1984(0), NORMAL(1) }
    Version       ::= BIT STRING { VERSION_1(0) }
    Requirements  ::= BIT STRING { CONTEXT_MANAGEMENT(0), RESTORATION(1) }

    /// Session functional units.
    SessionRequirements ::= BIT STRING {
        HALF_DUPLEX(0), DUPLEX(1), EXPEDITED_DATA(2), MINOR_SYNCHRONISE(3), MAJOR_SYNCHRONISE(4), RESYNCHRONISE(5),
        ACTIVITY_MANAGEMENT(6), NEGOTIATED_RELEASE(7), CAPABILITY_DATA(8), EXCEPTIONS(9), TYPED_DATA(10),
        SYMMETRIC_SYNCHRONISE(11), DATA_SEPARATION(12),
    }

    /// A proposed context.
    ContextDefinition ::= SEQUENCE {
        /// The context identifier: odd if proposed by the initiator.
        id                 Integer,
        /// The abstract syntax of its values.
        abstract_syntax    Oid,
        /// The proposed transfer syntaxes.
        transfer_syntaxes  SequenceOf<Oid>,
    }

    /// The result for a proposed context.
    ContextResult ::= SEQUENCE {
        /// Accepted or rejected.
        result           [0] IMPLICIT ResultCode,
        /// The selected transfer syntax.
        transfer_syntax  [1] IMPLICIT Oid OPTIONAL,
        /// The reason why the provider rejects the context.
        reason           [2] IMPLICIT ContextReason OPTIONAL,
    }

    /// The default context, for values that do not name a context.
    DefaultContext ::= SEQUENCE {
        /// The abstract syntax of its values.
        abstract_syntax  [0] IMPLICIT Oid,
        /// The transfer syntax of its values.
        transfer_syntax  [1] IMPLICIT Oid,
    }

    /// A context and its transfer syntax.
    ContextIdentifier ::= SEQUENCE {
        /// The context identifier.
        id               Integer,
        /// The transfer syntax of its values.
        transfer_syntax  Oid,
    }

    ResultCode     ::= INTEGER { ACCEPTANCE(0), USER_REJECTION(1), PROVIDER_REJECTION(2) }
    ContextReason  ::= INTEGER {
        NOT_SPECIFIED(0), ABSTRACT_SYNTAX_NOT_SUPPORTED(1), TRANSFER_SYNTAXES_NOT_SUPPORTED(2), LOCAL_LIMIT(3),
    }
    ProviderReason ::= INTEGER {
        NOT_SPECIFIED(0), TEMPORARY_CONGESTION(1), LOCAL_LIMIT_EXCEEDED(2), CALLED_ADDRESS_UNKNOWN(3),
        VERSION_NOT_SUPPORTED(4), DEFAULT_CONTEXT_NOT_SUPPORTED(5), USER_DATA_NOT_READABLE(6), NO_PSAP_AVAILABLE(7),
    }
    AbortReason    ::= INTEGER {
        NOT_SPECIFIED(0), UNRECOGNIZED_PPDU(1), UNEXPECTED_PPDU(2), UNEXPECTED_SESSION_PRIMITIVE(3),
        UNRECOGNIZED_PARAMETER(4), UNEXPECTED_PARAMETER(5), INVALID_PARAMETER(6),
    }
    /// The event that caused an abort.
    Event          ::= INTEGER {
        CP(0), CPA(1), CPR(2), ARU(3), ARP(4), AC(5), ACA(6), TD(7), TTD(8), TE(9), TC(10), TCC(11), RS(12), RSA(13),
        S_RELEASE_INDICATION(14), S_RELEASE_CONFIRM(15), S_TOKEN_GIVE_INDICATION(16), S_TOKEN_PLEASE_INDICATION(17),
        S_CONTROL_GIVE_INDICATION(18), S_SYNC_MINOR_INDICATION(19), S_SYNC_MINOR_CONFIRM(20),
        S_SYNC_MAJOR_INDICATION(21), S_SYNC_MAJOR_CONFIRM(22), S_P_EXCEPTION_REPORT_INDICATION(23),
        S_U_EXCEPTION_REPORT_INDICATION(24), S_ACTIVITY_START_INDICATION(25), S_ACTIVITY_RESUME_INDICATION(26),
        S_ACTIVITY_INTERRUPT_INDICATION(27), S_ACTIVITY_INTERRUPT_CONFIRM(28), S_ACTIVITY_DISCARD_INDICATION(29),
        S_ACTIVITY_DISCARD_CONFIRM(30), S_ACTIVITY_END_INDICATION(31), S_ACTIVITY_END_CONFIRM(32),
    }
}

impl ModeSelector {
    /// Normal mode.
    pub const NORMAL: ModeSelector = ModeSelector { mode: Mode::NORMAL };
}

impl ContextResult {
    /// Returns the result for an accepted context.
    pub const fn accepted(transfer_syntax: Oid) -> ContextResult {
        ContextResult { result: ResultCode::ACCEPTANCE, transfer_syntax: Some(transfer_syntax), reason: None }
    }

    /// The result for a context that the user rejects.
    pub const USER_REJECTION: ContextResult =
        ContextResult { result: ResultCode::USER_REJECTION, transfer_syntax: None, reason: None };

    /// Returns the result for a context that the provider rejects.
    pub const fn provider_rejection(reason: ContextReason) -> ContextResult {
        ContextResult { result: ResultCode::PROVIDER_REJECTION, transfer_syntax: None, reason: Some(reason) }
    }

    /// Returns whether the context is accepted.
    pub fn is_acceptance(&self) -> bool {
        self.result == ResultCode::ACCEPTANCE
    }
}
