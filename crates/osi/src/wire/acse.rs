//! ACSE's APDUs (X.227 §9), which manage associations between application entities.
//!
//! Purpose          the APDUs establish, release and abort an association. With them, two entities exchange
//!                  their names, agree on an application context and, with the authentication functional
//!                  unit, authenticate each other.
//! Transport        the APDUs are user data of presentation primitives, in the context of
//!                  [`ABSTRACT_SYNTAX`].
//! Names            AP titles and AE qualifiers are numbers or directory names; directory names stay encoded.
//! Not implemented  negotiation of application contexts, higher-level and nested associations; these fields
//!                  are ignored.

use crate::asn1;
use crate::wire::ber::{Any, BitString, External, GraphicString, Integer, Oid, SequenceOf};

/// The abstract syntax of the APDUs.
pub const ABSTRACT_SYNTAX: Oid = Oid::of("2.2.1.0.1");
/// Authentication by a password (X.227 Annex B): the value is a GraphicString.
pub const PASSWORD_MECHANISM: Oid = Oid::of("2.2.3.1");

asn1! {
    /// Any APDU.
    Apdu ::= CHOICE {
        /// A-ASSOCIATE-REQUEST.
        Aarq  Aarq,
        /// A-ASSOCIATE-RESPONSE.
        Aare  Aare,
        /// A-RELEASE-REQUEST.
        Rlrq  Rlrq,
        /// A-RELEASE-RESPONSE.
        Rlre  Rlre,
        /// A-ABORT.
        Abrt  Abrt,
    }

    /// A-ASSOCIATE-REQUEST.
    Aarq ::= [APPLICATION 0] IMPLICIT SEQUENCE {
        /// The versions that the requestor supports.
        version                   [0] IMPLICIT Version DEFAULT Version::VERSION_1,
        /// The application context name.
        application_context       [1] EXPLICIT Oid,
        /// The called AP title.
        called_ap_title           [2] EXPLICIT ApTitle OPTIONAL,
        /// The called AE qualifier.
        called_ae_qualifier       [3] EXPLICIT AeQualifier OPTIONAL,
        /// The called AP invocation identifier.
        called_ap_invocation      [4] EXPLICIT Integer OPTIONAL,
        /// The called AE invocation identifier.
        called_ae_invocation      [5] EXPLICIT Integer OPTIONAL,
        /// The calling AP title.
        calling_ap_title          [6] EXPLICIT ApTitle OPTIONAL,
        /// The calling AE qualifier.
        calling_ae_qualifier      [7] EXPLICIT AeQualifier OPTIONAL,
        /// The calling AP invocation identifier.
        calling_ap_invocation     [8] EXPLICIT Integer OPTIONAL,
        /// The calling AE invocation identifier.
        calling_ae_invocation     [9] EXPLICIT Integer OPTIONAL,
        /// The proposed functional units, in addition to the kernel.
        requirements              [10] IMPLICIT Requirements OPTIONAL,
        /// The authentication mechanism.
        mechanism                 [11] IMPLICIT Oid OPTIONAL,
        /// The calling authentication value.
        authentication            [12] EXPLICIT AuthenticationValue OPTIONAL,
        /// Implementation information.
        implementation            [29] IMPLICIT GraphicString OPTIONAL,
        /// User information.
        user_information          [30] IMPLICIT SequenceOf<External> OPTIONAL,
    }

    /// A-ASSOCIATE-RESPONSE.
    Aare ::= [APPLICATION 1] IMPLICIT SEQUENCE {
        /// The selected version.
        version                   [0] IMPLICIT Version DEFAULT Version::VERSION_1,
        /// The application context name.
        application_context       [1] EXPLICIT Oid,
        /// Accepted or rejected.
        result                    [2] EXPLICIT AssociateResult,
        /// The source and reason of the result.
        diagnostic                [3] EXPLICIT AssociateDiagnostic,
        /// The responding AP title.
        responding_ap_title       [4] EXPLICIT ApTitle OPTIONAL,
        /// The responding AE qualifier.
        responding_ae_qualifier   [5] EXPLICIT AeQualifier OPTIONAL,
        /// The responding AP invocation identifier.
        responding_ap_invocation  [6] EXPLICIT Integer OPTIONAL,
        /// The responding AE invocation identifier.
        responding_ae_invocation  [7] EXPLICIT Integer OPTIONAL,
        /// Functional units in addition to the kernel.
        requirements              [8] IMPLICIT Requirements OPTIONAL,
        /// The authentication mechanism.
        mechanism                 [9] IMPLICIT Oid OPTIONAL,
        /// The responding authentication value.
        authentication            [10] EXPLICIT AuthenticationValue OPTIONAL,
        /// Implementation information.
        implementation            [29] IMPLICIT GraphicString OPTIONAL,
        /// User information.
        user_information          [30] IMPLICIT SequenceOf<External> OPTIONAL,
    }

    /// A-RELEASE-REQUEST.
    Rlrq ::= [APPLICATION 2] IMPLICIT SEQUENCE {
        /// The reason.
        reason            [0] IMPLICIT ReleaseRequestReason OPTIONAL,
        /// User information.
        user_information  [30] IMPLICIT SequenceOf<External> OPTIONAL,
    }

    /// A-RELEASE-RESPONSE.
    Rlre ::= [APPLICATION 3] IMPLICIT SEQUENCE {
        /// The reason.
        reason            [0] IMPLICIT ReleaseResponseReason OPTIONAL,
        /// User information.
        user_information  [30] IMPLICIT SequenceOf<External> OPTIONAL,
    }

    /// A-ABORT.
    Abrt ::= [APPLICATION 4] IMPLICIT SEQUENCE {
        /// The source of the abort.
        source            [0] IMPLICIT AbortSource,
        /// The diagnostic; only with authentication.
        diagnostic        [1] IMPLICIT AbortDiagnostic OPTIONAL,
        /// User information.
        user_information  [30] IMPLICIT SequenceOf<External> OPTIONAL,
    }

    Version      ::= BIT STRING { VERSION_1(0) }
    Requirements ::= BIT STRING { AUTHENTICATION(0), APPLICATION_CONTEXT_NEGOTIATION(1) }

    /// The name of an application process.
    ApTitle ::= CHOICE {
        /// Form 2: an object identifier.
        Form2  Oid,
        /// Form 1 (a directory name) or any other form; kept in encoded form.
        Other  Any,
    }

    /// The name of an entity within an application process.
    AeQualifier ::= CHOICE {
        /// Form 2: a number.
        Form2  Integer,
        /// Form 1 (a relative distinguished name) or any other form; kept in encoded form.
        Other  Any,
    }

    /// An authentication value.
    AuthenticationValue ::= CHOICE {
        /// A character string, such as a password.
        Charstring  [0] IMPLICIT GraphicString,
        /// A bit string.
        Bitstring   [1] IMPLICIT BitString,
        /// A value of another syntax.
        External    [2] IMPLICIT External,
        /// A value defined by a mechanism.
        Other       [3] IMPLICIT OtherAuthentication,
    }

    /// An authentication value defined by a mechanism.
    OtherAuthentication ::= SEQUENCE {
        /// The mechanism.
        mechanism  Oid,
        /// The value.
        value      Any,
    }

    AssociateResult ::= INTEGER { ACCEPTED(0), REJECTED_PERMANENT(1), REJECTED_TRANSIENT(2) }

    /// The source and reason of a result.
    AssociateDiagnostic ::= CHOICE {
        /// The source is the user of ACSE.
        ServiceUser      [1] EXPLICIT UserDiagnostic,
        /// The source is ACSE itself.
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
