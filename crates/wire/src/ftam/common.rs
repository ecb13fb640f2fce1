//! Parameters that many FPDUs have (ISO 8571-4, the types tagged APPLICATION).

use super::ErrorIdentifier;
use crate::asn1;
use crate::ber::{External, GraphicString, Integer, OctetString, Oid};

asn1! {
    /// Whether the state changed as was asked.
    StateResult ::= [APPLICATION 21] IMPLICIT INTEGER { SUCCESS(0), FAILURE(1) }

    /// Whether the action was done.
    ActionResult ::= [APPLICATION 5] IMPLICIT INTEGER {
        SUCCESS(0),
        /// May succeed if it is tried again.
        TRANSIENT_ERROR(1),
        PERMANENT_ERROR(2),
    }

    /// What there is to say about a result.
    Diagnostic ::= [APPLICATION 13] IMPLICIT SEQUENCE OF DiagnosticItem;

    /// One thing that there is to say.
    DiagnosticItem ::= SEQUENCE {
        diagnostic_type  [0] IMPLICIT DiagnosticType,
        /// One of [`ErrorIdentifier`]'s numbers.
        error_identifier [1] IMPLICIT Integer,
        error_observer   [2] IMPLICIT EntityReference,
        error_source     [3] IMPLICIT EntityReference,
        /// In minutes.
        suggested_delay  [4] IMPLICIT Integer OPTIONAL,
        further_details  [5] IMPLICIT GraphicString OPTIONAL,
    }

    /// How grave it is.
    DiagnosticType ::= INTEGER { INFORMATIVE(0), TRANSIENT(1), PERMANENT(2) }

    /// Who saw or caused it. The first and the fourth can only be a source.
    EntityReference ::= INTEGER {
        NO_CATEGORIZATION_POSSIBLE(0),
        INITIATING_FILE_SERVICE_USER(1),
        INITIATING_FILE_PROTOCOL_MACHINE(2),
        SERVICE_SUPPORTING_THE_FILE_PROTOCOL_MACHINE(3),
        RESPONDING_FILE_PROTOCOL_MACHINE(4),
        /// The virtual filestore.
        RESPONDING_FILE_SERVICE_USER(5),
    }

    /// Who asks.
    UserIdentity ::= [APPLICATION 22] IMPLICIT GraphicString;

    /// Who pays.
    Account ::= [APPLICATION 4] IMPLICIT GraphicString;

    /// A password.
    Password ::= [APPLICATION 17] EXPLICIT PasswordValue;

    /// A password's form.
    PasswordValue ::= CHOICE {
        Graphic GraphicString,
        Octets  OctetString,
    }

    /// A password for each action. An empty one is none.
    AccessPasswords ::= [APPLICATION 2] IMPLICIT SEQUENCE {
        read_password             [0] EXPLICIT Password,
        insert_password           [1] EXPLICIT Password,
        replace_password          [2] EXPLICIT Password,
        extend_password           [3] EXPLICIT Password,
        erase_password            [4] EXPLICIT Password,
        read_attribute_password   [5] EXPLICIT Password,
        change_attribute_password [6] EXPLICIT Password,
        delete_password           [7] EXPLICIT Password,
        /// With filestore management alone.
        pass_passwords            [8] IMPLICIT PassPasswords OPTIONAL,
        /// Likewise.
        link_password             [9] EXPLICIT Password OPTIONAL,
    }

    /// A password for each directory on the way.
    PassPasswords ::= SEQUENCE OF Password;

    /// Passwords for each component of a path; with filestore management alone.
    PathAccessPasswords ::= [APPLICATION 27] IMPLICIT SEQUENCE OF PathPasswords;

    /// Those for one component.
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

    /// Which actions are asked for.
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

    /// Who may do an action while this user has the file.
    Lock ::= INTEGER {
        /// I may not, others may.
        NOT_REQUIRED(0),
        /// I may, others may.
        SHARED(1),
        /// I may, others may not.
        EXCLUSIVE(2),
        /// Nobody may.
        NO_ACCESS(3),
    }

    /// Carried for other application services, such as commitment.
    SharedAseInformation ::= [APPLICATION 20] IMPLICIT External;

    /// What it cost.
    Charging ::= [APPLICATION 9] IMPLICIT SEQUENCE OF Charge;

    /// One thing that cost something.
    Charge ::= SEQUENCE {
        resource_identifier [0] IMPLICIT GraphicString,
        charging_unit       [1] IMPLICIT GraphicString,
        charging_value      [2] IMPLICIT Integer,
    }

    /// The name of an open regime, for recovery.
    ActivityIdentifier ::= [APPLICATION 6] IMPLICIT Integer;

    /// An abstract syntax.
    AbstractSyntaxName ::= [APPLICATION 0] IMPLICIT Oid;

    /// A document type.
    DocumentTypeName ::= [APPLICATION 14] IMPLICIT Oid;

    /// A constraint set.
    ConstraintSetName ::= [APPLICATION 11] IMPLICIT Oid;

    /// What part of a file's structure is transferred (ISO 8571-2).
    AccessContext ::= [APPLICATION 1] IMPLICIT SEQUENCE {
        access_context [0] IMPLICIT AccessContextKind,
        /// With FL alone.
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
        /// UA: data alone.
        UNSTRUCTURED_ALL_DATA_UNITS(5),
        /// US.
        UNSTRUCTURED_SINGLE_DATA_UNIT(6),
    }

    /// Which file access data unit is meant.
    FaduIdentity ::= [APPLICATION 15] EXPLICIT FaduName;

    /// The ways to name a file access data unit.
    FaduName ::= CHOICE {
        FirstLast  [0] IMPLICIT FirstLast,
        Relative   [1] IMPLICIT Relative,
        BeginEnd   [2] IMPLICIT BeginEnd,
        SingleName [3] IMPLICIT External,
        NameList   [4] IMPLICIT NodeNames,
        /// In the order of traversal; the root is 0.
        FaduNumber [5] IMPLICIT Integer,
    }

    /// The first or the last data unit.
    FirstLast ::= INTEGER { FIRST(0), LAST(1) }
    /// From where the last action was.
    Relative ::= INTEGER { PREVIOUS(0), CURRENT(1), NEXT(2) }
    /// Before the first or behind the last.
    BeginEnd ::= INTEGER { BEGIN(0), END(1) }
    /// A path of names from the root.
    NodeNames ::= SEQUENCE OF External;

    /// Whether the data unit stays locked.
    FaduLock ::= [APPLICATION 16] IMPLICIT INTEGER { OFF(0), ON(1) }

    /// How transfers may overlap (amendment 2).
    DegreeOfOverlap ::= [APPLICATION 30] IMPLICIT INTEGER { NORMAL(0), CONSECUTIVE(1), CONCURRENT(2) }

    /// Which of overlapping transfers is meant (amendment 2).
    RequestType ::= [APPLICATION 31] IMPLICIT INTEGER { READ(0), WRITE(1) }

    /// Whether a reference was followed (amendment 1).
    ReferentIndicator ::= [APPLICATION 29] IMPLICIT Boolean;
}

type Boolean = bool;

impl ConcurrencyControl {
    /// The same lock for every action.
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

    /// The locks in the order of [`AccessRequest`]'s bits.
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
    /// The same password for every action.
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
    /// Its characters or octets: either form of one password says the same.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            PasswordValue::Graphic(text) => &text.0,
            PasswordValue::Octets(octets) => octets,
        }
    }
}

impl AccessContext {
    /// This kind; FL needs a level beside.
    pub const fn of(kind: AccessContextKind) -> AccessContext {
        AccessContext { access_context: kind, level_number: None }
    }
}

impl FaduIdentity {
    /// The whole file, if it has no structure, and the first data unit otherwise.
    pub const FIRST: FaduIdentity = FaduIdentity(FaduName::FirstLast(FirstLast::FIRST));
    /// Behind the last data unit.
    pub const END: FaduIdentity = FaduIdentity(FaduName::BeginEnd(BeginEnd::END));
}

/// In the standard's words, with what was said beside them, on one line.
impl core::fmt::Display for DiagnosticItem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        ErrorIdentifier(self.error_identifier).fmt(f)?;
        if let Some(details) = self.further_details.as_ref().filter(|details| !details.text().is_empty()) {
            write!(f, " ({})", details.text().escape_debug())?;
        }
        if self.diagnostic_type == DiagnosticType::TRANSIENT {
            f.write_str(", later perhaps")?;
        }
        Ok(())
    }
}

impl DiagnosticItem {
    /// Something to say, without details.
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

    /// The same with a word for people.
    pub fn with_details(mut self, details: &str) -> DiagnosticItem {
        self.further_details = Some(details.into());
        self
    }

    /// Its number, which has words.
    pub const fn error(&self) -> ErrorIdentifier {
        ErrorIdentifier(self.error_identifier)
    }
}

impl From<DiagnosticItem> for Diagnostic {
    fn from(item: DiagnosticItem) -> Diagnostic {
        Diagnostic(alloc::vec![item])
    }
}
