//! ACSE's data units (X.227 §9): associations of application entities.
//!
//! Goal      an association is made, released or aborted; the two say who they are, what they want to do with each
//!           other (the application context), and prove who they are (the authentication functional unit).
//! Carried   as user data of the presentation primitives, in the context of [`ABSTRACT_SYNTAX`].
//! Names     AP-titles and AE-qualifiers are numbers or directory names; the latter are kept as they were encoded.
//! Left out  negotiation of application contexts, higher-level and nested associations: the fields are passed over.

use crate::asn1;
use crate::ber::{Any, BitString, External, GraphicString, Integer, Oid, SequenceOf};

/// The abstract syntax of these data units.
pub const ABSTRACT_SYNTAX: Oid = Oid::of("2.2.1.0.1");
/// Authentication by a password (X.227 Annex B): the value is a GraphicString.
pub const PASSWORD_MECHANISM: Oid = Oid::of("2.2.3.1");

asn1! {
    /// Any of the data units.
    Apdu ::= CHOICE {
        /// Request to associate.
        Aarq  Aarq,
        /// Response to it.
        Aare  Aare,
        /// Request to release.
        Rlrq  Rlrq,
        /// Response to it.
        Rlre  Rlre,
        /// Abort.
        Abrt  Abrt,
    }

    /// A-ASSOCIATE-REQUEST.
    Aarq ::= [APPLICATION 0] IMPLICIT SEQUENCE {
        /// Versions that the requestor has.
        version                   [0] IMPLICIT Version DEFAULT Version::VERSION_1,
        /// What the two want to do with each other.
        application_context       [1] EXPLICIT Oid,
        /// Who is called.
        called_ap_title           [2] EXPLICIT ApTitle OPTIONAL,
        /// Which entity of it.
        called_ae_qualifier       [3] EXPLICIT AeQualifier OPTIONAL,
        /// Which run of it.
        called_ap_invocation      [4] EXPLICIT Integer OPTIONAL,
        /// Which run of the entity.
        called_ae_invocation      [5] EXPLICIT Integer OPTIONAL,
        /// Who calls.
        calling_ap_title          [6] EXPLICIT ApTitle OPTIONAL,
        /// Which entity of it.
        calling_ae_qualifier      [7] EXPLICIT AeQualifier OPTIONAL,
        /// Which run of it.
        calling_ap_invocation     [8] EXPLICIT Integer OPTIONAL,
        /// Which run of the entity.
        calling_ae_invocation     [9] EXPLICIT Integer OPTIONAL,
        /// Functional units, if more than the kernel.
        requirements              [10] IMPLICIT Requirements OPTIONAL,
        /// How the caller proves who it is.
        mechanism                 [11] IMPLICIT Oid OPTIONAL,
        /// The proof.
        authentication            [12] EXPLICIT AuthenticationValue OPTIONAL,
        /// About the implementation.
        implementation            [29] IMPLICIT GraphicString OPTIONAL,
        /// The user's.
        user_information          [30] IMPLICIT SequenceOf<External> OPTIONAL,
    }

    /// A-ASSOCIATE-RESPONSE.
    Aare ::= [APPLICATION 1] IMPLICIT SEQUENCE {
        /// The version that was selected.
        version                   [0] IMPLICIT Version DEFAULT Version::VERSION_1,
        /// What the two do with each other.
        application_context       [1] EXPLICIT Oid,
        /// Yes or no.
        result                    [2] EXPLICIT AssociateResult,
        /// Who says so, and why.
        diagnostic                [3] EXPLICIT AssociateDiagnostic,
        /// Who answers.
        responding_ap_title       [4] EXPLICIT ApTitle OPTIONAL,
        /// Which entity of it.
        responding_ae_qualifier   [5] EXPLICIT AeQualifier OPTIONAL,
        /// Which run of it.
        responding_ap_invocation  [6] EXPLICIT Integer OPTIONAL,
        /// Which run of the entity.
        responding_ae_invocation  [7] EXPLICIT Integer OPTIONAL,
        /// Functional units, if more than the kernel.
        requirements              [8] IMPLICIT Requirements OPTIONAL,
        /// How the answerer proves who it is.
        mechanism                 [9] IMPLICIT Oid OPTIONAL,
        /// The proof.
        authentication            [10] EXPLICIT AuthenticationValue OPTIONAL,
        /// About the implementation.
        implementation            [29] IMPLICIT GraphicString OPTIONAL,
        /// The user's.
        user_information          [30] IMPLICIT SequenceOf<External> OPTIONAL,
    }

    /// A-RELEASE-REQUEST.
    Rlrq ::= [APPLICATION 2] IMPLICIT SEQUENCE {
        /// Why.
        reason            [0] IMPLICIT ReleaseRequestReason OPTIONAL,
        /// The user's.
        user_information  [30] IMPLICIT SequenceOf<External> OPTIONAL,
    }

    /// A-RELEASE-RESPONSE.
    Rlre ::= [APPLICATION 3] IMPLICIT SEQUENCE {
        /// What of it.
        reason            [0] IMPLICIT ReleaseResponseReason OPTIONAL,
        /// The user's.
        user_information  [30] IMPLICIT SequenceOf<External> OPTIONAL,
    }

    /// A-ABORT.
    Abrt ::= [APPLICATION 4] IMPLICIT SEQUENCE {
        /// Who aborts.
        source            [0] IMPLICIT AbortSource,
        /// Why; only with authentication.
        diagnostic        [1] IMPLICIT AbortDiagnostic OPTIONAL,
        /// The user's.
        user_information  [30] IMPLICIT SequenceOf<External> OPTIONAL,
    }

    Version      ::= BIT STRING { VERSION_1(0) }
    Requirements ::= BIT STRING { AUTHENTICATION(0), APPLICATION_CONTEXT_NEGOTIATION(1) }

    /// An application process.
    ApTitle ::= CHOICE {
        /// Form 2: a number.
        Form2  Oid,
        /// Form 1 (a directory name) or any other, as it was encoded.
        Other  Any,
    }

    /// An entity of an application process.
    AeQualifier ::= CHOICE {
        /// Form 2: a number.
        Form2  Integer,
        /// Form 1 (a relative name) or any other, as it was encoded.
        Other  Any,
    }

    /// The proof of who one is.
    AuthenticationValue ::= CHOICE {
        /// Such as a password.
        Charstring  [0] IMPLICIT GraphicString,
        /// Bits.
        Bitstring   [1] IMPLICIT BitString,
        /// A value of another syntax.
        External    [2] IMPLICIT External,
        /// A value that a mechanism defines.
        Other       [3] IMPLICIT OtherAuthentication,
    }

    /// A proof that a mechanism defines.
    OtherAuthentication ::= SEQUENCE {
        /// The mechanism.
        mechanism  Oid,
        /// The proof.
        value      Any,
    }

    AssociateResult ::= INTEGER { ACCEPTED(0), REJECTED_PERMANENT(1), REJECTED_TRANSIENT(2) }

    /// Who decided on an association, and why.
    AssociateDiagnostic ::= CHOICE {
        /// ACSE's user.
        ServiceUser      [1] EXPLICIT UserDiagnostic,
        /// ACSE itself.
        ServiceProvider  [2] EXPLICIT ProviderDiagnostic,
    }

    UserDiagnostic ::= INTEGER {
        NULL(0), NO_REASON_GIVEN(1), APPLICATION_CONTEXT_NAME_NOT_SUPPORTED(2), CALLING_AP_TITLE_NOT_RECOGNIZED(3),
        CALLING_AP_INVOCATION_IDENTIFIER_NOT_RECOGNIZED(4), CALLING_AE_QUALIFIER_NOT_RECOGNIZED(5),
        CALLING_AE_INVOCATION_IDENTIFIER_NOT_RECOGNIZED(6), CALLED_AP_TITLE_NOT_RECOGNIZED(7),
        CALLED_AP_INVOCATION_IDENTIFIER_NOT_RECOGNIZED(8), CALLED_AE_QUALIFIER_NOT_RECOGNIZED(9),
        CALLED_AE_INVOCATION_IDENTIFIER_NOT_RECOGNIZED(10), AUTHENTICATION_MECHANISM_NAME_NOT_RECOGNIZED(11),
        AUTHENTICATION_MECHANISM_NAME_REQUIRED(12), AUTHENTICATION_FAILURE(13), AUTHENTICATION_REQUIRED(14),
    }

    ProviderDiagnostic    ::= INTEGER { NULL(0), NO_REASON_GIVEN(1), NO_COMMON_ACSE_VERSION(2) }
    ReleaseRequestReason  ::= INTEGER { NORMAL(0), URGENT(1), USER_DEFINED(30) }
    ReleaseResponseReason ::= INTEGER { NORMAL(0), NOT_FINISHED(1), USER_DEFINED(30) }
    AbortSource           ::= INTEGER { SERVICE_USER(0), SERVICE_PROVIDER(1) }
    AbortDiagnostic       ::= ENUMERATED {
        NO_REASON_GIVEN(1), PROTOCOL_ERROR(2), AUTHENTICATION_MECHANISM_NAME_NOT_RECOGNIZED(3),
        AUTHENTICATION_MECHANISM_NAME_REQUIRED(4), AUTHENTICATION_FAILURE(5), AUTHENTICATION_REQUIRED(6),
    }
}
