//! FPDUs of the file selection and file open regimes (tags 6 to 31).

use super::attributes::{
    AttributeNames, ChangeAttributes, ContentsType, CreateAttributes, ReadAttributes, SelectAttributes,
};
use super::common::{
    AbstractSyntaxName, AccessPasswords, AccessRequest, Account, ActionResult, ActivityIdentifier, Charging,
    ConcurrencyControl, DegreeOfOverlap, Diagnostic, FaduIdentity, FaduLock, Password, PathAccessPasswords,
    ReferentIndicator, SharedAseInformation, StateResult,
};
use crate::asn1;
use crate::wire::ber::{Any, Boolean, Integer, Null, SequenceOf, SetOf};

asn1! {
    /// F-SELECT request.
    SelectRequest ::= SEQUENCE {
        attributes             SelectAttributes,
        requested_access       AccessRequest,
        access_passwords       AccessPasswords OPTIONAL,
        path_access_passwords  PathAccessPasswords OPTIONAL,
        concurrency_control    ConcurrencyControl OPTIONAL,
        shared_ase_information SharedAseInformation OPTIONAL,
        account                Account OPTIONAL,
    }

    /// F-SELECT response.
    SelectResponse ::= SEQUENCE {
        state_result           StateResult DEFAULT StateResult::SUCCESS,
        action_result          ActionResult DEFAULT ActionResult::SUCCESS,
        attributes             SelectAttributes,
        referent_indicator     ReferentIndicator OPTIONAL,
        shared_ase_information SharedAseInformation OPTIONAL,
        diagnostic             Diagnostic OPTIONAL,
    }

    /// F-DESELECT request.
    DeselectRequest ::= SEQUENCE {
        shared_ase_information SharedAseInformation OPTIONAL,
    }

    /// F-DESELECT response.
    DeselectResponse ::= SEQUENCE {
        action_result          ActionResult DEFAULT ActionResult::SUCCESS,
        charging               Charging OPTIONAL,
        shared_ase_information SharedAseInformation OPTIONAL,
        diagnostic             Diagnostic OPTIONAL,
    }

    /// F-CREATE request.
    CreateRequest ::= SEQUENCE {
        r#override             [0] IMPLICIT Override DEFAULT Override::CREATE_FAILURE,
        initial_attributes     CreateAttributes,
        create_password        Password OPTIONAL,
        requested_access       AccessRequest,
        access_passwords       AccessPasswords OPTIONAL,
        path_access_passwords  PathAccessPasswords OPTIONAL,
        concurrency_control    ConcurrencyControl OPTIONAL,
        shared_ase_information SharedAseInformation OPTIONAL,
        account                Account OPTIONAL,
    }

    /// The action to take if a file of this name exists.
    Override ::= INTEGER {
        CREATE_FAILURE(0),
        SELECT_OLD_OBJECT(1),
        DELETE_AND_CREATE_WITH_OLD_ATTRIBUTES(2),
        DELETE_AND_CREATE_WITH_NEW_ATTRIBUTES(3),
    }

    /// F-CREATE response.
    CreateResponse ::= SEQUENCE {
        state_result           StateResult DEFAULT StateResult::SUCCESS,
        action_result          ActionResult DEFAULT ActionResult::SUCCESS,
        initial_attributes     CreateAttributes,
        shared_ase_information SharedAseInformation OPTIONAL,
        diagnostic             Diagnostic OPTIONAL,
    }

    /// F-DELETE request.
    DeleteRequest ::= SEQUENCE {
        shared_ase_information SharedAseInformation OPTIONAL,
    }

    /// F-DELETE response.
    DeleteResponse ::= SEQUENCE {
        action_result          ActionResult DEFAULT ActionResult::SUCCESS,
        shared_ase_information SharedAseInformation OPTIONAL,
        charging               Charging OPTIONAL,
        diagnostic             Diagnostic OPTIONAL,
    }

    /// F-READ-ATTRIB request.
    ReadAttributesRequest ::= SEQUENCE {
        attribute_names           [0] IMPLICIT AttributeNames,
        attribute_extension_names [1] IMPLICIT SequenceOf<Any> OPTIONAL,
    }

    /// F-READ-ATTRIB response.
    ReadAttributesResponse ::= SEQUENCE {
        action_result ActionResult DEFAULT ActionResult::SUCCESS,
        attributes    ReadAttributes OPTIONAL,
        diagnostic    Diagnostic OPTIONAL,
    }

    /// F-CHANGE-ATTRIB request.
    ChangeAttributesRequest ::= SEQUENCE {
        attributes ChangeAttributes,
    }

    /// F-CHANGE-ATTRIB response.
    ChangeAttributesResponse ::= SEQUENCE {
        action_result ActionResult DEFAULT ActionResult::SUCCESS,
        attributes    ChangeAttributes OPTIONAL,
        diagnostic    Diagnostic OPTIONAL,
    }

    /// F-OPEN request.
    OpenRequest ::= SEQUENCE {
        processing_mode        [0] IMPLICIT ProcessingMode DEFAULT ProcessingMode::READ,
        contents_type          [1] EXPLICIT OpenContentsType,
        concurrency_control    ConcurrencyControl OPTIONAL,
        shared_ase_information SharedAseInformation OPTIONAL,
        enable_fadu_locking    [2] IMPLICIT Boolean DEFAULT false,
        /// Present only with recovery.
        activity_identifier    ActivityIdentifier OPTIONAL,
        recovery_mode          [3] IMPLICIT RecoveryMode DEFAULT RecoveryMode::NONE,
        remove_contexts        [4] IMPLICIT SetOf<AbstractSyntaxName> OPTIONAL,
        define_contexts        [5] IMPLICIT SetOf<AbstractSyntaxName> OPTIONAL,
        degree_of_overlap      DegreeOfOverlap OPTIONAL,
        transfer_window        [7] IMPLICIT Integer OPTIONAL,
    }

    /// The intended operations on the contents.
    ProcessingMode ::= BIT STRING { READ(0), INSERT(1), REPLACE(2), EXTEND(3), ERASE(4) }

    /// The requested contents type.
    OpenContentsType ::= CHOICE {
        /// The contents type stored with the file.
        Unknown  [0] IMPLICIT Null,
        Proposed [1] EXPLICIT ContentsType,
    }

    /// The points from which a transfer can be recovered.
    RecoveryMode ::= INTEGER { NONE(0), AT_START_OF_FILE(1), AT_ANY_ACTIVE_CHECKPOINT(2) }

    /// F-OPEN response.
    OpenResponse ::= SEQUENCE {
        state_result           StateResult DEFAULT StateResult::SUCCESS,
        action_result          ActionResult DEFAULT ActionResult::SUCCESS,
        contents_type          [1] EXPLICIT ContentsType,
        concurrency_control    ConcurrencyControl OPTIONAL,
        shared_ase_information SharedAseInformation OPTIONAL,
        diagnostic             Diagnostic OPTIONAL,
        recovery_mode          [3] IMPLICIT RecoveryMode DEFAULT RecoveryMode::NONE,
        presentation_action    [6] IMPLICIT Boolean DEFAULT false,
        degree_of_overlap      DegreeOfOverlap OPTIONAL,
        transfer_window        [7] IMPLICIT Integer OPTIONAL,
    }

    /// F-CLOSE request.
    CloseRequest ::= SEQUENCE {
        action_result          ActionResult DEFAULT ActionResult::SUCCESS,
        shared_ase_information SharedAseInformation OPTIONAL,
        diagnostic             Diagnostic OPTIONAL,
    }

    /// F-CLOSE response.
    CloseResponse ::= SEQUENCE {
        action_result          ActionResult DEFAULT ActionResult::SUCCESS,
        shared_ase_information SharedAseInformation OPTIONAL,
        diagnostic             Diagnostic OPTIONAL,
    }

    /// F-BEGIN-GROUP request.
    BeginGroupRequest ::= SEQUENCE {
        /// The number of requests in the group that must succeed for any to be performed.
        threshold [0] IMPLICIT Integer,
    }

    /// F-BEGIN-GROUP response.
    BeginGroupResponse ::= SEQUENCE {}

    /// F-END-GROUP request.
    EndGroupRequest ::= SEQUENCE {}

    /// F-END-GROUP response.
    EndGroupResponse ::= SEQUENCE {}

    /// F-RECOVER request.
    RecoverRequest ::= SEQUENCE {
        activity_identifier              ActivityIdentifier,
        bulk_transfer_number             [0] IMPLICIT Integer,
        requested_access                 AccessRequest,
        access_passwords                 AccessPasswords OPTIONAL,
        /// A checkpoint. 0 stands for the beginning of the file, and the last checkpoint plus one for its
        /// end.
        recovery_point                   [2] IMPLICIT Integer DEFAULT 0,
        remove_contexts                  [3] IMPLICIT SetOf<AbstractSyntaxName> OPTIONAL,
        define_contexts                  [4] IMPLICIT SetOf<AbstractSyntaxName> OPTIONAL,
        concurrent_bulk_transfer_number  [7] IMPLICIT Integer OPTIONAL,
        concurrent_recovery_point        [8] IMPLICIT Integer OPTIONAL,
        last_transfer_end_read_response  [9] IMPLICIT Integer OPTIONAL,
        last_transfer_end_write_response [10] IMPLICIT Integer OPTIONAL,
    }

    /// F-RECOVER response.
    RecoverResponse ::= SEQUENCE {
        state_result                    StateResult DEFAULT StateResult::SUCCESS,
        action_result                   ActionResult DEFAULT ActionResult::SUCCESS,
        contents_type                   [1] EXPLICIT ContentsType,
        recovery_point                  [2] IMPLICIT Integer DEFAULT 0,
        diagnostic                      Diagnostic OPTIONAL,
        presentation_action             [6] IMPLICIT Boolean DEFAULT false,
        concurrent_recovery_point       [8] IMPLICIT Integer OPTIONAL,
        last_transfer_end_read_request  [9] IMPLICIT Integer OPTIONAL,
        last_transfer_end_write_request [10] IMPLICIT Integer OPTIONAL,
    }

    /// F-LOCATE request.
    LocateRequest ::= SEQUENCE {
        file_access_data_unit_identity FaduIdentity,
        fadu_lock                      FaduLock OPTIONAL,
    }

    /// F-LOCATE response.
    LocateResponse ::= SEQUENCE {
        action_result                  ActionResult DEFAULT ActionResult::SUCCESS,
        file_access_data_unit_identity FaduIdentity OPTIONAL,
        diagnostic                     Diagnostic OPTIONAL,
    }

    /// F-ERASE request.
    EraseRequest ::= SEQUENCE {
        file_access_data_unit_identity FaduIdentity,
    }

    /// F-ERASE response.
    EraseResponse ::= SEQUENCE {
        action_result ActionResult DEFAULT ActionResult::SUCCESS,
        diagnostic    Diagnostic OPTIONAL,
    }
}

impl SelectRequest {
    /// Builds a request to select a file for these actions.
    pub fn new(attributes: SelectAttributes, access: AccessRequest) -> SelectRequest {
        SelectRequest {
            attributes,
            requested_access: access,
            access_passwords: None,
            path_access_passwords: None,
            concurrency_control: None,
            shared_ase_information: None,
            account: None,
        }
    }
}

impl SelectResponse {
    /// Builds a response for a selected file.
    pub fn new(attributes: SelectAttributes) -> SelectResponse {
        SelectResponse {
            state_result: StateResult::SUCCESS,
            action_result: ActionResult::SUCCESS,
            attributes,
            referent_indicator: None,
            shared_ase_information: None,
            diagnostic: None,
        }
    }
}

impl CreateRequest {
    /// Builds a request to create a file with the given attributes, override and actions.
    pub fn new(r#override: Override, attributes: CreateAttributes, access: AccessRequest) -> CreateRequest {
        CreateRequest {
            r#override,
            initial_attributes: attributes,
            create_password: None,
            requested_access: access,
            access_passwords: None,
            path_access_passwords: None,
            concurrency_control: None,
            shared_ase_information: None,
            account: None,
        }
    }
}

impl CreateResponse {
    /// Builds a response for a created and selected file.
    pub fn new(attributes: CreateAttributes) -> CreateResponse {
        CreateResponse {
            state_result: StateResult::SUCCESS,
            action_result: ActionResult::SUCCESS,
            initial_attributes: attributes,
            shared_ase_information: None,
            diagnostic: None,
        }
    }
}

impl OpenRequest {
    /// Builds a request without locks and without recovery.
    pub fn new(processing_mode: ProcessingMode, contents_type: OpenContentsType) -> OpenRequest {
        OpenRequest {
            processing_mode,
            contents_type,
            concurrency_control: None,
            shared_ase_information: None,
            enable_fadu_locking: false,
            activity_identifier: None,
            recovery_mode: RecoveryMode::NONE,
            remove_contexts: None,
            define_contexts: None,
            degree_of_overlap: None,
            transfer_window: None,
        }
    }
}

impl OpenResponse {
    /// Builds a response for a file that was opened with this contents type.
    pub fn new(contents_type: ContentsType) -> OpenResponse {
        OpenResponse {
            state_result: StateResult::SUCCESS,
            action_result: ActionResult::SUCCESS,
            contents_type,
            concurrency_control: None,
            shared_ase_information: None,
            diagnostic: None,
            recovery_mode: RecoveryMode::NONE,
            presentation_action: false,
            degree_of_overlap: None,
            transfer_window: None,
        }
    }
}

impl RecoverRequest {
    /// Builds a request to resume an activity's transfer at this point.
    pub fn new(
        activity: i64,
        bulk_transfer_number: i64,
        access: AccessRequest,
        recovery_point: i64,
    ) -> RecoverRequest {
        RecoverRequest {
            activity_identifier: ActivityIdentifier(activity),
            bulk_transfer_number,
            requested_access: access,
            access_passwords: None,
            recovery_point,
            remove_contexts: None,
            define_contexts: None,
            concurrent_bulk_transfer_number: None,
            concurrent_recovery_point: None,
            last_transfer_end_read_response: None,
            last_transfer_end_write_response: None,
        }
    }
}

impl RecoverResponse {
    /// Builds a response for a reopened file whose transfer continues at this point.
    pub fn new(contents_type: ContentsType, recovery_point: i64) -> RecoverResponse {
        RecoverResponse {
            state_result: StateResult::SUCCESS,
            action_result: ActionResult::SUCCESS,
            contents_type,
            recovery_point,
            diagnostic: None,
            presentation_action: false,
            concurrent_recovery_point: None,
            last_transfer_end_read_request: None,
            last_transfer_end_write_request: None,
        }
    }
}
