//! Parameters that many FPDUs share (in ISO 8571-4, the types tagged APPLICATION).

use super::ErrorIdentifier;
use crate::asn1;
use crate::wire::ber::{External, GraphicString, Integer, OctetString, Oid};
use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;

asn1! {
    /// Whether the state changed as requested.
    StateResult ::= [APPLICATION 21] IMPLICIT INTEGER { SUCCESS(0), FAILURE(1) }

    /// Whether the action was performed.
    ActionResult ::= [APPLICATION 5] IMPLICIT INTEGER {
        SUCCESS(0),
        /// The action may succeed if repeated.
        TRANSIENT_ERROR(1),
        PERMANENT_ERROR(2),
    }

    /// The diagnostics that accompany a result.
    Diagnostic ::= [APPLICATION 13] IMPLICIT SEQUENCE OF DiagnosticItem;

    /// One diagnostic.
    DiagnosticItem ::= SEQUENCE {
        diagnostic_type  [0] IMPLICIT DiagnosticType,
        /// A value of [`ErrorIdentifier`].
        error_identifier [1] IMPLICIT Integer,
        error_observer   [2] IMPLICIT EntityReference,
        error_source     [3] IMPLICIT EntityReference,
        /// Suggested delay in minutes.
        suggested_delay  [4] IMPLICIT Integer OPTIONAL,
        further_details  [5] IMPLICIT GraphicString OPTIONAL,
    }

    /// The severity.
    DiagnosticType ::= INTEGER { INFORMATIVE(0), TRANSIENT(1), PERMANENT(2) }

    /// The entity that observed or caused the error. The values 0 and 3 can only occur as a source.
    EntityReference ::= INTEGER {
        NO_CATEGORIZATION_POSSIBLE(0),
        INITIATING_FILE_SERVICE_USER(1),
        INITIATING_FILE_PROTOCOL_MACHINE(2),
        SERVICE_SUPPORTING_THE_FILE_PROTOCOL_MACHINE(3),
        RESPONDING_FILE_PROTOCOL_MACHINE(4),
        /// The virtual filestore at the responder.
        RESPONDING_FILE_SERVICE_USER(5),
    }

    /// The initiator identity.
    UserIdentity ::= [APPLICATION 22] IMPLICIT GraphicString;

    /// The account to charge.
    Account ::= [APPLICATION 4] IMPLICIT GraphicString;

    /// A password.
    Password ::= [APPLICATION 17] EXPLICIT PasswordValue;

    /// The form of a password.
    PasswordValue ::= CHOICE {
        Graphic GraphicString,
        Octets  OctetString,
    }

    /// A password for each action; an empty one means no password.
    AccessPasswords ::= [APPLICATION 2] IMPLICIT SEQUENCE {
        read_password             [0] EXPLICIT Password,
        insert_password           [1] EXPLICIT Password,
        replace_password          [2] EXPLICIT Password,
        extend_password           [3] EXPLICIT Password,
        erase_password            [4] EXPLICIT Password,
        read_attribute_password   [5] EXPLICIT Password,
        change_attribute_password [6] EXPLICIT Password,
        delete_password           [7] EXPLICIT Password,
        /// Used only with filestore management.
        pass_passwords            [8] IMPLICIT PassPasswords OPTIONAL,
        /// Used only with filestore management.
        link_password             [9] EXPLICIT Password OPTIONAL,
    }

    /// A password for each directory on the path.
    PassPasswords ::= SEQUENCE OF Password;

    /// Passwords for each component of a path; used only with filestore management.
    PathAccessPasswords ::= [APPLICATION 27] IMPLICIT SEQUENCE OF PathPasswords;

    /// The passwords for one component.
    PathPasswords ::= SEQUENCE {
        read_password             [0] EXPLICIT Password,
        insert_password           [1] EXPLICIT Password,
        replace_password          [2] EXPLICIT Password,
        extend_password           [3] EXPLICIT Password,
        erase_password            [4] EXPLICIT Password,
        read_attribute_password   [5] EXPLICIT Password,
        change_attribute_password [6] EXPLICIT Password,
        delete_password           [7] EXPLICIT Password,
        pass_passwords            [8] IMPLICIT PassPasswords,
        link_password             [9] EXPLICIT Password,
    }

    /// The requested actions.
    AccessRequest ::= [APPLICATION 3] IMPLICIT BIT STRING {
        READ(0), INSERT(1), REPLACE(2), EXTEND(3), ERASE(4), READ_ATTRIBUTE(5), CHANGE_ATTRIBUTE(6), DELETE_OBJECT(7),
    }

    /// A lock for each action.
    ConcurrencyControl ::= [APPLICATION 10] IMPLICIT SEQUENCE {
        read             [0] IMPLICIT Lock,
        insert           [1] IMPLICIT Lock,
        replace          [2] IMPLICIT Lock,
        extend           [3] IMPLICIT Lock,
        erase            [4] IMPLICIT Lock,
        read_attribute   [5] IMPLICIT Lock,
        change_attribute [6] IMPLICIT Lock,
        delete_object    [7] IMPLICIT Lock,
    }

    /// The users who may perform an action while this user has the file selected or open.
    Lock ::= INTEGER {
        /// This user does not perform the action; others may.
        NOT_REQUIRED(0),
        /// This user and others may.
        SHARED(1),
        /// Only this user may.
        EXCLUSIVE(2),
        /// No one may.
        NO_ACCESS(3),
    }

    /// Data of other application service elements, such as commitment.
    SharedAseInformation ::= [APPLICATION 20] IMPLICIT External;

    /// The charges for a file access.
    Charging ::= [APPLICATION 9] IMPLICIT SEQUENCE OF Charge;

    /// One charge.
    Charge ::= SEQUENCE {
        resource_identifier [0] IMPLICIT GraphicString,
        charging_unit       [1] IMPLICIT GraphicString,
        charging_value      [2] IMPLICIT Integer,
    }

    /// The identifier of an open regime, for recovery.
    ActivityIdentifier ::= [APPLICATION 6] IMPLICIT Integer;

    /// An abstract syntax.
    AbstractSyntaxName ::= [APPLICATION 0] IMPLICIT Oid;

    /// A document type.
    DocumentTypeName ::= [APPLICATION 14] IMPLICIT Oid;

    /// A constraint set.
    ConstraintSetName ::= [APPLICATION 11] IMPLICIT Oid;

    /// The part of a file's structure to transfer (ISO 8571-2).
    AccessContext ::= [APPLICATION 1] IMPLICIT SEQUENCE {
        access_context [0] IMPLICIT AccessContextKind,
        /// The level; used only with FL.
        level_number   [1] IMPLICIT Integer OPTIONAL,
    }

    /// The kinds of access contexts.
    AccessContextKind ::= INTEGER {
        /// HA.
        HIERARCHICAL_ALL_DATA_UNITS(0),
        /// HN.
        HIERARCHICAL_NO_DATA_UNITS(1),
        /// FA.
        FLAT_ALL_DATA_UNITS(2),
        /// FL.
        FLAT_ONE_LEVEL_DATA_UNIT(3),
        /// FS.
        FLAT_SINGLE_DATA_UNIT(4),
        /// UA: data only.
        UNSTRUCTURED_ALL_DATA_UNITS(5),
        /// US.
        UNSTRUCTURED_SINGLE_DATA_UNIT(6),
    }

    /// The identity of a file access data unit.
    FaduIdentity ::= [APPLICATION 15] EXPLICIT FaduName;

    /// The forms of a data unit's identity.
    FaduName ::= CHOICE {
        FirstLast  [0] IMPLICIT FirstLast,
        Relative   [1] IMPLICIT Relative,
        BeginEnd   [2] IMPLICIT BeginEnd,
        SingleName [3] IMPLICIT External,
        NameList   [4] IMPLICIT NodeNames,
        /// The number in the order of traversal; the root is 0.
        FaduNumber [5] IMPLICIT Integer,
    }

    /// The first or the last data unit in the file.
    FirstLast ::= INTEGER { FIRST(0), LAST(1) }
    /// A position relative to the data unit of the last action.
    Relative ::= INTEGER { PREVIOUS(0), CURRENT(1), NEXT(2) }
    /// The position before the first or after the last data unit.
    BeginEnd ::= INTEGER { BEGIN(0), END(1) }
    /// A path of names from the root.
    NodeNames ::= SEQUENCE OF External;

    /// Whether the data unit remains locked.
    FaduLock ::= [APPLICATION 16] IMPLICIT INTEGER { OFF(0), ON(1) }

    /// How transfers may overlap (amendment 2).
    DegreeOfOverlap ::= [APPLICATION 30] IMPLICIT INTEGER { NORMAL(0), CONSECUTIVE(1), CONCURRENT(2) }

    /// Identifies one of two overlapping transfers (amendment 2).
    RequestType ::= [APPLICATION 31] IMPLICIT INTEGER { READ(0), WRITE(1) }

    /// Whether a reference was followed (amendment 1).
    ReferentIndicator ::= [APPLICATION 29] IMPLICIT Boolean;
}

type Boolean = bool;

impl ConcurrencyControl {
    /// Builds a value with the same lock for every action.
    pub const fn all(lock: Lock) -> ConcurrencyControl {
        ConcurrencyControl {
            read: lock,
            insert: lock,
            replace: lock,
            extend: lock,
            erase: lock,
            read_attribute: lock,
            change_attribute: lock,
            delete_object: lock,
        }
    }

    /// Returns the locks in the order of [`AccessRequest`]'s bits.
    pub const fn locks(&self) -> [Lock; 8] {
        [
            self.read,
            self.insert,
            self.replace,
            self.extend,
            self.erase,
            self.read_attribute,
            self.change_attribute,
            self.delete_object,
        ]
    }
}

impl AccessPasswords {
    /// Builds a value with the same password for every action.
    pub fn all(password: &Password) -> AccessPasswords {
        let password = || password.clone();
        AccessPasswords {
            read_password: password(),
            insert_password: password(),
            replace_password: password(),
            extend_password: password(),
            erase_password: password(),
            read_attribute_password: password(),
            change_attribute_password: password(),
            delete_password: password(),
            pass_passwords: None,
            link_password: None,
        }
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Password {
        Password(PasswordValue::Graphic(text.into()))
    }
}

impl Password {
    /// Returns the octets of the password; both forms of a password are equivalent.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            PasswordValue::Graphic(text) => &text.0,
            PasswordValue::Octets(octets) => octets,
        }
    }
}

impl AccessContext {
    /// Builds a context of this kind; FL also needs a level.
    pub const fn of(kind: AccessContextKind) -> AccessContext {
        AccessContext { access_context: kind, level_number: None }
    }
}

impl FaduIdentity {
    /// The whole contents of an unstructured file, or the first data unit of any other file.
    pub const FIRST: FaduIdentity = FaduIdentity(FaduName::FirstLast(FirstLast::FIRST));
    /// The position after the last data unit.
    pub const END: FaduIdentity = FaduIdentity(FaduName::BeginEnd(BeginEnd::END));
}

/// Formats a diagnostic on one line: the standard's wording, then any further details.
impl core::fmt::Display for DiagnosticItem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}{}", self.error_identifier, self.suffix())
    }
}

impl DiagnosticItem {
    /// Returns what [`Display`](core::fmt::Display) writes, without the number.
    pub fn words(&self) -> String {
        self.suffix().trim_start_matches([' ', ',']).to_owned()
    }

    /// Returns the text that follows the number.
    fn suffix(&self) -> String {
        let mut suffix = String::new();
        if let Some(words) = ErrorIdentifier(self.error_identifier).words() {
            suffix += " ";
            suffix += words;
        }
        if let Some(details) = self.further_details.as_ref().filter(|details| !details.text().is_empty()) {
            suffix += &format!(" ({})", details.text().escape_debug());
        }
        if self.diagnostic_type == DiagnosticType::TRANSIENT {
            suffix += ", later perhaps";
        }
        suffix
    }

    /// Builds a diagnostic without details.
    pub fn new(
        diagnostic_type: DiagnosticType,
        error: ErrorIdentifier,
        observer: EntityReference,
        source: EntityReference,
    ) -> DiagnosticItem {
        DiagnosticItem {
            diagnostic_type,
            error_identifier: error.0,
            error_observer: observer,
            error_source: source,
            suggested_delay: None,
            further_details: None,
        }
    }

    /// Adds further details, as text for humans.
    pub fn with_details(mut self, details: &str) -> DiagnosticItem {
        self.further_details = Some(details.into());
        self
    }

    /// Returns the error identifier, which may have a name.
    pub const fn error(&self) -> ErrorIdentifier {
        ErrorIdentifier(self.error_identifier)
    }
}

impl From<DiagnosticItem> for Diagnostic {
    fn from(item: DiagnosticItem) -> Diagnostic {
        Diagnostic(alloc::vec![item])
    }
}
