//! Attributes of files (ISO 8571-2), as FPDUs carry them.
//!
//! Groups    kernel: name, permitted actions, contents type. Storage: account, dates, identities,
//!           availability, sizes. Security: access control, legal qualification. Private: private use.
//! Partial   a filestore returns "no value available" for an attribute that it supports only partially.
//! Carried   attribute extensions (amendment 1) are passed on without being interpreted.

use alloc::string::String;
use alloc::vec::Vec;

use super::common::{
    AbstractSyntaxName, AccessPasswords, AccessRequest, Account, ConstraintSetName, DocumentTypeName,
    UserIdentity,
};
use crate::asn1;
use crate::wire::ber::{
    Any, Asn1, External, GeneralizedTime, GraphicString, Integer, Null, Oid, SequenceOf, SetOf,
};

asn1! {
    /// The attributes by which a file is selected.
    SelectAttributes ::= [APPLICATION 19] IMPLICIT SEQUENCE {
        pathname PathnameAttribute,
    }

    /// The attributes of a file to be created.
    CreateAttributes ::= [APPLICATION 12] IMPLICIT SEQUENCE {
        pathname             PathnameAttribute,
        object_type          [18] IMPLICIT ObjectType DEFAULT ObjectType::FILE,
        permitted_actions    [1]  IMPLICIT PermittedActions,
        contents_type        [2]  EXPLICIT ContentsType,
        storage_account      [3]  EXPLICIT AccountAttribute OPTIONAL,
        object_availability  [12] EXPLICIT AvailabilityAttribute OPTIONAL,
        future_object_size   [14] EXPLICIT SizeAttribute OPTIONAL,
        access_control       [15] EXPLICIT AccessControlAttribute OPTIONAL,
        path_access_control  [21] EXPLICIT AccessControlAttribute OPTIONAL,
        legal_qualification  [16] EXPLICIT LegalQualificationAttribute OPTIONAL,
        private_use          [17] EXPLICIT PrivateUseAttribute OPTIONAL,
        attribute_extensions [22] IMPLICIT SequenceOf<Any> OPTIONAL,
    }

    /// The attributes that were read.
    ReadAttributes ::= [APPLICATION 18] IMPLICIT SEQUENCE {
        pathname                                     PathnameAttribute OPTIONAL,
        object_type                                  [18] IMPLICIT ObjectType OPTIONAL,
        permitted_actions                            [1]  IMPLICIT PermittedActions OPTIONAL,
        contents_type                                [2]  EXPLICIT ContentsType OPTIONAL,
        linked_object                                [19] EXPLICIT PathnameAttribute OPTIONAL,
        child_objects                                [23] EXPLICIT SetOf<GraphicString> OPTIONAL,
        primary_pathname                             [20] EXPLICIT PathnameAttribute OPTIONAL,
        storage_account                              [3]  EXPLICIT AccountAttribute OPTIONAL,
        date_and_time_of_creation                    [4]  EXPLICIT DateAndTimeAttribute OPTIONAL,
        date_and_time_of_last_modification           [5]  EXPLICIT DateAndTimeAttribute OPTIONAL,
        date_and_time_of_last_read_access            [6]  EXPLICIT DateAndTimeAttribute OPTIONAL,
        date_and_time_of_last_attribute_modification [7]  EXPLICIT DateAndTimeAttribute OPTIONAL,
        identity_of_creator                          [8]  EXPLICIT UserIdentityAttribute OPTIONAL,
        identity_of_last_modifier                    [9]  EXPLICIT UserIdentityAttribute OPTIONAL,
        identity_of_last_reader                      [10] EXPLICIT UserIdentityAttribute OPTIONAL,
        identity_of_last_attribute_modifier          [11] EXPLICIT UserIdentityAttribute OPTIONAL,
        object_availability                          [12] EXPLICIT AvailabilityAttribute OPTIONAL,
        object_size                                  [13] EXPLICIT SizeAttribute OPTIONAL,
        future_object_size                           [14] EXPLICIT SizeAttribute OPTIONAL,
        access_control                               [15] EXPLICIT AccessControlAttribute OPTIONAL,
        path_access_control                          [21] EXPLICIT AccessControlAttribute OPTIONAL,
        legal_qualification                          [16] EXPLICIT LegalQualificationAttribute OPTIONAL,
        private_use                                  [17] EXPLICIT PrivateUseAttribute OPTIONAL,
        attribute_extensions                         [22] IMPLICIT SequenceOf<Any> OPTIONAL,
    }

    /// The attributes to change.
    ChangeAttributes ::= [APPLICATION 8] IMPLICIT SEQUENCE {
        pathname             PathnameAttribute OPTIONAL,
        storage_account      [3]  EXPLICIT AccountAttribute OPTIONAL,
        object_availability  [12] EXPLICIT AvailabilityAttribute OPTIONAL,
        future_object_size   [14] EXPLICIT SizeAttribute OPTIONAL,
        access_control       [15] EXPLICIT AccessControlChange OPTIONAL,
        path_access_control  [21] EXPLICIT AccessControlChange OPTIONAL,
        legal_qualification  [16] EXPLICIT LegalQualificationAttribute OPTIONAL,
        private_use          [17] EXPLICIT PrivateUseAttribute OPTIONAL,
        attribute_extensions [22] IMPLICIT SequenceOf<Any> OPTIONAL,
    }

    /// The names of the attributes to read.
    AttributeNames ::= BIT STRING {
        PATHNAME(0), PERMITTED_ACTIONS(1), CONTENTS_TYPE(2),
        STORAGE_ACCOUNT(3), DATE_AND_TIME_OF_CREATION(4), DATE_AND_TIME_OF_LAST_MODIFICATION(5),
        DATE_AND_TIME_OF_LAST_READ_ACCESS(6), DATE_AND_TIME_OF_LAST_ATTRIBUTE_MODIFICATION(7),
        IDENTITY_OF_CREATOR(8), IDENTITY_OF_LAST_MODIFIER(9), IDENTITY_OF_LAST_READER(10),
        IDENTITY_OF_LAST_ATTRIBUTE_MODIFIER(11), OBJECT_AVAILABILITY(12), OBJECT_SIZE(13), FUTURE_OBJECT_SIZE(14),
        ACCESS_CONTROL(15), LEGAL_QUALIFICATIONS(16), PRIVATE_USE(17),
        OBJECT_TYPE(18), LINKED_OBJECT(19), PRIMARY_PATHNAME(20), PATH_ACCESS_CONTROL(21), CHILD_OBJECTS(23),
    }

    /// A file's name.
    PathnameAttribute ::= CHOICE {
        Incomplete [0] IMPLICIT Pathname,
        Complete   [APPLICATION 23] IMPLICIT Pathname,
    }

    /// The components of a name.
    Pathname ::= SEQUENCE OF GraphicString;

    /// The object type (amendment 1).
    ObjectType ::= INTEGER { FILE(0), FILE_DIRECTORY(1), REFERENCE(2) }

    /// The permitted actions on the file, and the permitted ways to address its data units.
    PermittedActions ::= BIT STRING {
        READ(0), INSERT(1), REPLACE(2), EXTEND(3), ERASE(4), READ_ATTRIBUTE(5), CHANGE_ATTRIBUTE(6), DELETE_OBJECT(7),
        TRAVERSAL(8), REVERSE_TRAVERSAL(9), RANDOM_ORDER(10), PASS(11), LINK(12),
    }

    /// The contents type of the file.
    ContentsType ::= CHOICE {
        DocumentType [0] IMPLICIT DocumentType,
        ConstraintSetAndAbstractSyntax [1] IMPLICIT ConstraintSetAndAbstractSyntax,
    }

    /// A document type name with a parameter; the parameter's type depends on the document type.
    DocumentType ::= SEQUENCE {
        document_type_name DocumentTypeName,
        parameter          [0] EXPLICIT Any OPTIONAL,
    }

    /// A constraint set and abstract syntax, for contents without a document type.
    ConstraintSetAndAbstractSyntax ::= SEQUENCE {
        constraint_set_name  ConstraintSetName,
        abstract_syntax_name AbstractSyntaxName,
    }

    /// An account, if there is one.
    AccountAttribute ::= CHOICE {
        NoValueAvailable [0] IMPLICIT Null,
        Actual Account,
    }

    /// A user's identity, if there is one.
    UserIdentityAttribute ::= CHOICE {
        NoValueAvailable [0] IMPLICIT Null,
        Actual UserIdentity,
    }

    /// A date and time, if there is one.
    DateAndTimeAttribute ::= CHOICE {
        NoValueAvailable [0] IMPLICIT Null,
        Actual [1] IMPLICIT GeneralizedTime,
    }

    /// The file availability, if known.
    AvailabilityAttribute ::= CHOICE {
        NoValueAvailable [0] IMPLICIT Null,
        Actual [1] IMPLICIT Availability,
    }

    /// Whether the file is available immediately.
    Availability ::= INTEGER { IMMEDIATE(0), DEFERRED(1) }

    /// A size in octets, if there is one.
    SizeAttribute ::= CHOICE {
        NoValueAvailable [0] IMPLICIT Null,
        Actual [1] IMPLICIT Integer,
    }

    /// The legal qualification.
    LegalQualificationAttribute ::= CHOICE {
        NoValueAvailable [0] IMPLICIT Null,
        Actual [1] IMPLICIT GraphicString,
    }

    /// Private use.
    PrivateUseAttribute ::= CHOICE {
        NoValueAvailable           [0] IMPLICIT Null,
        AbstractSyntaxNotSupported [1] IMPLICIT Null,
        Actual                     [2] IMPLICIT External,
    }

    /// The access control list.
    AccessControlAttribute ::= CHOICE {
        NoValueAvailable [0] IMPLICIT Null,
        Actual [1] IMPLICIT SetOf<AccessControlElement>,
    }

    /// A change of the access control list.
    AccessControlChange ::= CHOICE {
        NoValueAvailable [0] IMPLICIT Null,
        Actual [1] IMPLICIT AccessControlChanges,
    }

    /// Elements to insert and to remove.
    AccessControlChanges ::= SEQUENCE {
        insert_values [0] IMPLICIT SetOf<AccessControlElement> OPTIONAL,
        delete_values [1] IMPLICIT SetOf<AccessControlElement> OPTIONAL,
    }

    /// One permission: a user who meets all of its conditions may perform these actions.
    AccessControlElement ::= SEQUENCE {
        action_list        [0] IMPLICIT AccessRequest,
        concurrency_access [1] IMPLICIT ConcurrencyAccess OPTIONAL,
        identity           [2] IMPLICIT UserIdentity OPTIONAL,
        passwords          [3] IMPLICIT AccessPasswords OPTIONAL,
        /// An application entity title (ISO 8650).
        location           [4] EXPLICIT Any OPTIONAL,
    }

    /// The permitted locks for each action.
    ConcurrencyAccess ::= SEQUENCE {
        read             [0] IMPLICIT ConcurrencyKey,
        insert           [1] IMPLICIT ConcurrencyKey,
        replace          [2] IMPLICIT ConcurrencyKey,
        extend           [3] IMPLICIT ConcurrencyKey,
        erase            [4] IMPLICIT ConcurrencyKey,
        read_attribute   [5] IMPLICIT ConcurrencyKey,
        change_attribute [6] IMPLICIT ConcurrencyKey,
        delete_object    [7] IMPLICIT ConcurrencyKey,
    }

    /// Permitted locks.
    ConcurrencyKey ::= BIT STRING { NOT_REQUIRED(0), SHARED(1), EXCLUSIVE(2), NO_ACCESS(3) }
}

impl AttributeNames {
    /// The attributes of the kernel group.
    pub const KERNEL: AttributeNames = AttributeNames(0x7);
    /// The attributes of the storage group.
    pub const STORAGE: AttributeNames = AttributeNames(0x7ff8);
    /// The attributes of the security group.
    pub const SECURITY: AttributeNames = AttributeNames(0x1_8000);
    /// The attributes of the private group.
    pub const PRIVATE: AttributeNames = AttributeNames(0x2_0000);
}

impl ReadAttributes {
    /// No attributes.
    pub const NONE: ReadAttributes = ReadAttributes {
        pathname: None,
        object_type: None,
        permitted_actions: None,
        contents_type: None,
        linked_object: None,
        child_objects: None,
        primary_pathname: None,
        storage_account: None,
        date_and_time_of_creation: None,
        date_and_time_of_last_modification: None,
        date_and_time_of_last_read_access: None,
        date_and_time_of_last_attribute_modification: None,
        identity_of_creator: None,
        identity_of_last_modifier: None,
        identity_of_last_reader: None,
        identity_of_last_attribute_modifier: None,
        object_availability: None,
        object_size: None,
        future_object_size: None,
        access_control: None,
        path_access_control: None,
        legal_qualification: None,
        private_use: None,
        attribute_extensions: None,
    };
}

impl ChangeAttributes {
    /// No changes.
    pub const NONE: ChangeAttributes = ChangeAttributes {
        pathname: None,
        storage_account: None,
        object_availability: None,
        future_object_size: None,
        access_control: None,
        path_access_control: None,
        legal_qualification: None,
        private_use: None,
        attribute_extensions: None,
    };
}

impl CreateAttributes {
    /// Builds the kernel group of a file.
    pub fn new(
        pathname: PathnameAttribute,
        permitted: PermittedActions,
        contents: ContentsType,
    ) -> CreateAttributes {
        CreateAttributes {
            pathname,
            object_type: ObjectType::FILE,
            permitted_actions: permitted,
            contents_type: contents,
            storage_account: None,
            object_availability: None,
            future_object_size: None,
            access_control: None,
            path_access_control: None,
            legal_qualification: None,
            private_use: None,
            attribute_extensions: None,
        }
    }
}

impl PathnameAttribute {
    /// Returns the components of the name.
    pub fn components(&self) -> &[GraphicString] {
        let (PathnameAttribute::Incomplete(path) | PathnameAttribute::Complete(path)) = self;
        &path.0
    }

    /// Returns the components of the name separated by `/`, for display.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (place, component) in self.components().iter().enumerate() {
            if place > 0 {
                text.push('/');
            }
            text.push_str(&component.text());
        }
        text
    }
}

/// Builds a name of one component, as peers without filestore management send it.
impl From<&str> for PathnameAttribute {
    fn from(name: &str) -> PathnameAttribute {
        PathnameAttribute::Incomplete(Pathname(alloc::vec![name.into()]))
    }
}

impl From<&str> for SelectAttributes {
    fn from(name: &str) -> SelectAttributes {
        SelectAttributes { pathname: name.into() }
    }
}

impl ContentsType {
    /// Builds a document type with its parameter.
    pub fn document(name: Oid, parameter: Option<Vec<u8>>) -> ContentsType {
        ContentsType::DocumentType(DocumentType {
            document_type_name: DocumentTypeName(name),
            parameter: parameter.map(Any),
        })
    }

    /// Returns the parameter of the document type: `None` if this is not a document type, or has no parameter
    /// of type `T`.
    pub fn parameter<T: Asn1>(&self) -> Option<T> {
        let ContentsType::DocumentType(document) = self else { return None };
        T::read(&document.parameter.as_ref()?.0).ok().map(|(parameter, _)| parameter)
    }

    /// Returns the document type name; `None` if this is a constraint set.
    pub fn document_type(&self) -> Option<Oid> {
        match self {
            ContentsType::DocumentType(document) => Some(document.document_type_name.0),
            ContentsType::ConstraintSetAndAbstractSyntax(_) => None,
        }
    }
}
