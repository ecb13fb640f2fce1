//! Sample FPDUs: one of every kind. Each parameter occurs in at least one of them.

use kiban_osi::wire::ber::{Any, Encoding, External, GeneralizedTime, Null, Oid, SetOf};
use kiban_osi::wire::ftam::*;

fn external(bytes: &[u8]) -> External {
    External {
        direct_reference: Some(Oid::of("1.0.8571.2.2")),
        indirect_reference: Some(3),
        data_value_descriptor: None,
        encoding: Encoding::OctetAligned(bytes.to_vec()),
    }
}

fn shared() -> Option<SharedAseInformation> {
    Some(SharedAseInformation(external(b"shared")))
}

fn diagnostic() -> Option<Diagnostic> {
    let full = DiagnosticItem {
        suggested_delay: Some(300),
        ..DiagnosticItem::new(
            DiagnosticType::TRANSIENT,
            ErrorIdentifier::FILE_BUSY,
            EntityReference::RESPONDING_FILE_PROTOCOL_MACHINE,
            EntityReference::RESPONDING_FILE_SERVICE_USER,
        )
        .with_details("somebody else has it")
    };
    let plain = DiagnosticItem { suggested_delay: None, further_details: None, ..full.clone() };
    Some(Diagnostic(vec![full, plain]))
}

fn charging() -> Option<Charging> {
    let charge = |value| Charge {
        resource_identifier: "disk".into(),
        charging_unit: "octets".into(),
        charging_value: value,
    };
    Some(Charging(vec![charge(0), charge(1 << 40)]))
}

fn password(text: &str) -> Password {
    Password(if text.len().is_multiple_of(2) {
        PasswordValue::Graphic(text.into())
    } else {
        PasswordValue::Octets(text.into())
    })
}

fn passwords() -> AccessPasswords {
    AccessPasswords { insert_password: password("other"), ..AccessPasswords::all(&password("same")) }
}

fn locks() -> Option<ConcurrencyControl> {
    Some(ConcurrencyControl { replace: Lock::EXCLUSIVE, ..ConcurrencyControl::all(Lock::SHARED) })
}

fn path() -> PathnameAttribute {
    PathnameAttribute::Complete(Pathname(vec!["usr".into(), "adm".into(), "records".into()]))
}

fn binary() -> ContentsType {
    Document::UnstructuredBinary(BinaryParameters {
        maximum_string_length: Some(512),
        string_significance: Some(StringSignificance::VARIABLE),
    })
    .contents_type()
}

fn constrained() -> ContentsType {
    ContentsType::ConstraintSetAndAbstractSyntax(ConstraintSetAndAbstractSyntax {
        constraint_set_name: ConstraintSetName(oids::UNSTRUCTURED_CONSTRAINTS),
        abstract_syntax_name: AbstractSyntaxName(oids::UNSTRUCTURED_BINARY),
    })
}

fn element() -> AccessControlElement {
    let key = ConcurrencyKey::SHARED | ConcurrencyKey::NO_ACCESS;
    AccessControlElement {
        action_list: AccessRequest::READ | AccessRequest::DELETE_OBJECT,
        concurrency_access: Some(ConcurrencyAccess {
            read: key,
            insert: ConcurrencyKey::NOT_REQUIRED,
            replace: key,
            extend: ConcurrencyKey::EXCLUSIVE,
            erase: key,
            read_attribute: key,
            change_attribute: key,
            delete_object: key,
        }),
        identity: Some(UserIdentity("operator".into())),
        passwords: Some(passwords()),
        location: None,
    }
}

fn control() -> Option<AccessControlAttribute> {
    let open = AccessControlElement {
        action_list: AccessRequest::READ,
        concurrency_access: None,
        identity: None,
        passwords: None,
        location: None,
    };
    Some(AccessControlAttribute::Actual(SetOf(vec![element(), open])))
}

fn create_attributes() -> CreateAttributes {
    CreateAttributes {
        storage_account: Some(AccountAttribute::Actual(Account("billing".into()))),
        object_availability: Some(AvailabilityAttribute::Actual(Availability::DEFERRED)),
        future_object_size: Some(SizeAttribute::Actual(1 << 33)),
        access_control: control(),
        legal_qualification: Some(LegalQualificationAttribute::Actual("nobody's".into())),
        private_use: Some(PrivateUseAttribute::Actual(external(b"private"))),
        ..CreateAttributes::new(path(), PermittedActions::READ | PermittedActions::TRAVERSAL, binary())
    }
}

fn date(text: &str) -> Option<DateAndTimeAttribute> {
    Some(DateAndTimeAttribute::Actual(GeneralizedTime::from(text)))
}

fn read_attributes() -> ReadAttributes {
    let someone = |name: &str| Some(UserIdentityAttribute::Actual(UserIdentity(name.into())));
    ReadAttributes {
        pathname: Some("records".into()),
        permitted_actions: Some(PermittedActions(0x7ff)),
        contents_type: Some(binary()),
        storage_account: Some(AccountAttribute::NoValueAvailable(Null)),
        date_and_time_of_creation: date("19881001000000Z"),
        date_and_time_of_last_modification: date("19921115120000Z"),
        date_and_time_of_last_read_access: date("19930815235959Z"),
        date_and_time_of_last_attribute_modification: Some(DateAndTimeAttribute::NoValueAvailable(Null)),
        identity_of_creator: someone("maker"),
        identity_of_last_modifier: someone("changer"),
        identity_of_last_reader: Some(UserIdentityAttribute::NoValueAvailable(Null)),
        identity_of_last_attribute_modifier: someone("other"),
        object_availability: Some(AvailabilityAttribute::Actual(Availability::IMMEDIATE)),
        object_size: Some(SizeAttribute::Actual(65_536)),
        future_object_size: Some(SizeAttribute::NoValueAvailable(Null)),
        access_control: control(),
        legal_qualification: Some(LegalQualificationAttribute::NoValueAvailable(Null)),
        private_use: Some(PrivateUseAttribute::AbstractSyntaxNotSupported(Null)),
        ..ReadAttributes::NONE
    }
}

fn change_attributes() -> ChangeAttributes {
    ChangeAttributes {
        pathname: Some("renamed".into()),
        storage_account: Some(AccountAttribute::Actual(Account("billing".into()))),
        access_control: Some(AccessControlChange::Actual(AccessControlChanges {
            insert_values: Some(SetOf(vec![element()])),
            delete_values: Some(SetOf(vec![])),
        })),
        ..ChangeAttributes::NONE
    }
}

fn names() -> Vec<FaduIdentity> {
    [
        FaduName::FirstLast(FirstLast::LAST),
        FaduName::Relative(Relative::PREVIOUS),
        FaduName::BeginEnd(BeginEnd::END),
        FaduName::SingleName(external(b"node")),
        FaduName::NameList(NodeNames(vec![external(b"a"), external(b"b")])),
        FaduName::FaduNumber(70_000),
    ]
    .map(FaduIdentity)
    .to_vec()
}

/// Returns the FPDUs of the FTAM regime with the optional parameters of the first edition.
fn regime() -> Vec<Pdu> {
    let request =
        InitializeRequest::new(ServiceClass::TRANSFER, FunctionalUnits::READ | FunctionalUnits::GROUPING);
    let response =
        InitializeResponse::new(ServiceClass::TRANSFER, FunctionalUnits::READ | FunctionalUnits::GROUPING);
    let list = || {
        Some(ContentsTypeList(vec![
            ContentsTypeName::Document(DocumentTypeName(oids::NBS_9)),
            ContentsTypeName::AbstractSyntax(AbstractSyntaxName(oids::UNSTRUCTURED_BINARY)),
        ]))
    };
    vec![
        Pdu::InitializeRequest(request.clone().into()),
        Pdu::InitializeRequest(Box::new(InitializeRequest {
            protocol_version: ProtocolVersion::VERSION_1 | ProtocolVersion::VERSION_2,
            implementation_information: Some(ImplementationInformation("kiban".into())),
            presentation_context_management: true,
            service_class: ServiceClass::TRANSFER_AND_MANAGEMENT
                | ServiceClass::TRANSFER
                | ServiceClass::MANAGEMENT,
            functional_units: FunctionalUnits::RECOVERY
                | FunctionalUnits::RESTART_DATA_TRANSFER
                | FunctionalUnits::WRITE,
            attribute_groups: AttributeGroups::STORAGE | AttributeGroups::PRIVATE,
            shared_ase_information: shared(),
            ftam_quality_of_service: QualityOfService::CLASS_3_RECOVERY,
            contents_type_list: list(),
            initiator_identity: Some(UserIdentity("operator".into())),
            account: Some(Account("billing".into())),
            filestore_password: Some(password("secret!")),
            checkpoint_window: 7,
        })),
        Pdu::InitializeResponse(response.clone().into()),
        Pdu::InitializeResponse(Box::new(InitializeResponse {
            state_result: StateResult::FAILURE,
            action_result: ActionResult::PERMANENT_ERROR,
            implementation_information: Some(ImplementationInformation("kiban".into())),
            service_class: ServiceClass::ACCESS,
            attribute_groups: AttributeGroups::SECURITY,
            shared_ase_information: shared(),
            ftam_quality_of_service: QualityOfService::CLASS_1_RECOVERY,
            contents_type_list: list(),
            diagnostic: diagnostic(),
            checkpoint_window: 3,
            ..response
        })),
        Pdu::TerminateRequest(Box::new(TerminateRequest { shared_ase_information: shared() })),
        Pdu::TerminateRequest(Box::new(TerminateRequest { shared_ase_information: None })),
        Pdu::TerminateResponse(Box::new(TerminateResponse {
            shared_ase_information: shared(),
            charging: charging(),
        })),
        Pdu::UserAbort(Box::new(UserAbort {
            action_result: ActionResult::TRANSIENT_ERROR,
            diagnostic: diagnostic(),
        })),
        Pdu::ProviderAbort(Box::new(ProviderAbort {
            action_result: ActionResult::SUCCESS,
            diagnostic: None,
        })),
    ]
}

fn selection() -> Vec<Pdu> {
    let access = AccessRequest::READ | AccessRequest::CHANGE_ATTRIBUTE;
    vec![
        Pdu::SelectRequest(SelectRequest::new("records".into(), access).into()),
        Pdu::SelectRequest(Box::new(SelectRequest {
            access_passwords: Some(passwords()),
            concurrency_control: locks(),
            shared_ase_information: shared(),
            account: Some(Account("billing".into())),
            ..SelectRequest::new(SelectAttributes { pathname: path() }, access)
        })),
        Pdu::SelectResponse(Box::new(SelectResponse {
            state_result: StateResult::FAILURE,
            action_result: ActionResult::PERMANENT_ERROR,
            shared_ase_information: shared(),
            diagnostic: diagnostic(),
            ..SelectResponse::new("records".into())
        })),
        Pdu::DeselectRequest(Box::new(DeselectRequest { shared_ase_information: shared() })),
        Pdu::DeselectResponse(Box::new(DeselectResponse {
            action_result: ActionResult::SUCCESS,
            charging: charging(),
            shared_ase_information: shared(),
            diagnostic: diagnostic(),
        })),
        Pdu::CreateRequest(Box::new(CreateRequest {
            create_password: Some(password("create")),
            access_passwords: Some(passwords()),
            concurrency_control: locks(),
            shared_ase_information: shared(),
            account: Some(Account("billing".into())),
            ..CreateRequest::new(Override::DELETE_AND_CREATE_WITH_NEW_ATTRIBUTES, create_attributes(), access)
        })),
        Pdu::CreateResponse(Box::new(CreateResponse {
            action_result: ActionResult::TRANSIENT_ERROR,
            shared_ase_information: shared(),
            diagnostic: diagnostic(),
            ..CreateResponse::new(CreateAttributes::new(path(), PermittedActions::NONE, constrained()))
        })),
        Pdu::DeleteRequest(Box::new(DeleteRequest { shared_ase_information: None })),
        Pdu::DeleteResponse(Box::new(DeleteResponse {
            action_result: ActionResult::SUCCESS,
            shared_ase_information: shared(),
            charging: charging(),
            diagnostic: None,
        })),
        Pdu::ReadAttributesRequest(Box::new(ReadAttributesRequest {
            attribute_names: AttributeNames::KERNEL | AttributeNames::STORAGE | AttributeNames::PRIVATE,
            attribute_extension_names: None,
        })),
        Pdu::ReadAttributesResponse(Box::new(ReadAttributesResponse {
            action_result: ActionResult::SUCCESS,
            attributes: Some(read_attributes()),
            diagnostic: diagnostic(),
        })),
        Pdu::ChangeAttributesRequest(Box::new(ChangeAttributesRequest { attributes: change_attributes() })),
        Pdu::ChangeAttributesResponse(Box::new(ChangeAttributesResponse {
            action_result: ActionResult::PERMANENT_ERROR,
            attributes: Some(change_attributes()),
            diagnostic: diagnostic(),
        })),
    ]
}

fn open() -> Vec<Pdu> {
    let syntaxes = || Some(SetOf(vec![AbstractSyntaxName(oids::FADU)]));
    let mut all = vec![
        Pdu::OpenRequest(OpenRequest::new(ProcessingMode::READ, OpenContentsType::Unknown(Null)).into()),
        Pdu::OpenRequest(Box::new(OpenRequest {
            concurrency_control: locks(),
            shared_ase_information: shared(),
            enable_fadu_locking: true,
            activity_identifier: Some(ActivityIdentifier(1_234_567)),
            recovery_mode: RecoveryMode::AT_ANY_ACTIVE_CHECKPOINT,
            remove_contexts: syntaxes(),
            define_contexts: syntaxes(),
            ..OpenRequest::new(ProcessingMode::REPLACE, OpenContentsType::Proposed(constrained()))
        })),
        Pdu::OpenResponse(Box::new(OpenResponse {
            state_result: StateResult::FAILURE,
            concurrency_control: locks(),
            shared_ase_information: shared(),
            diagnostic: diagnostic(),
            recovery_mode: RecoveryMode::AT_START_OF_FILE,
            presentation_action: true,
            ..OpenResponse::new(binary())
        })),
        Pdu::CloseRequest(Box::new(CloseRequest {
            action_result: ActionResult::TRANSIENT_ERROR,
            shared_ase_information: shared(),
            diagnostic: diagnostic(),
        })),
        Pdu::CloseResponse(Box::new(CloseResponse {
            action_result: ActionResult::SUCCESS,
            shared_ase_information: None,
            diagnostic: None,
        })),
        Pdu::BeginGroupRequest(Box::new(BeginGroupRequest { threshold: 3 })),
        Pdu::BeginGroupResponse(Box::new(BeginGroupResponse {})),
        Pdu::EndGroupRequest(Box::new(EndGroupRequest {})),
        Pdu::EndGroupResponse(Box::new(EndGroupResponse {})),
        Pdu::RecoverRequest(RecoverRequest::new(-5, 1, AccessRequest::READ, 0).into()),
        Pdu::RecoverRequest(Box::new(RecoverRequest {
            access_passwords: Some(passwords()),
            remove_contexts: syntaxes(),
            define_contexts: syntaxes(),
            ..RecoverRequest::new(1_234_567, 2, AccessRequest::EXTEND, 40)
        })),
        Pdu::RecoverResponse(RecoverResponse::new(binary(), 41).into()),
        Pdu::RecoverResponse(Box::new(RecoverResponse {
            state_result: StateResult::FAILURE,
            action_result: ActionResult::TRANSIENT_ERROR,
            diagnostic: diagnostic(),
            presentation_action: true,
            ..RecoverResponse::new(constrained(), 0)
        })),
    ];
    for identity in names() {
        all.push(Pdu::LocateRequest(Box::new(LocateRequest {
            file_access_data_unit_identity: identity.clone(),
            fadu_lock: Some(FaduLock::ON),
        })));
        all.push(Pdu::LocateResponse(Box::new(LocateResponse {
            action_result: ActionResult::PERMANENT_ERROR,
            file_access_data_unit_identity: Some(identity.clone()),
            diagnostic: diagnostic(),
        })));
        all.push(Pdu::EraseRequest(Box::new(EraseRequest { file_access_data_unit_identity: identity })));
    }
    all.push(Pdu::EraseResponse(Box::new(EraseResponse {
        action_result: ActionResult::SUCCESS,
        diagnostic: diagnostic(),
    })));
    all
}

fn bulk() -> Vec<Pdu> {
    let cancel = Cancel {
        shared_ase_information: shared(),
        request_type: Some(RequestType::WRITE),
        transfer_number: Some(2),
        last_transfer_end_read_request: Some(1),
        last_transfer_end_read_response: Some(1),
        last_transfer_end_write_request: Some(1),
        last_transfer_end_write_response: Some(0),
        ..Cancel::new(ActionResult::TRANSIENT_ERROR, diagnostic())
    };
    let restart = Restart {
        request_type: Some(RequestType::READ),
        transfer_number: Some(3),
        last_transfer_end_read_request: Some(2),
        last_transfer_end_read_response: Some(2),
        last_transfer_end_write_request: Some(1),
        last_transfer_end_write_response: Some(1),
        ..Restart::new(17)
    };
    let mut all: Vec<Pdu> = names()
        .into_iter()
        .flat_map(|identity| {
            let level = AccessContext {
                access_context: AccessContextKind::FLAT_ONE_LEVEL_DATA_UNIT,
                level_number: Some(2),
            };
            [
                Pdu::ReadRequest(Box::new(ReadRequest {
                    fadu_lock: Some(FaduLock::OFF),
                    ..ReadRequest::new(identity.clone(), level)
                })),
                Pdu::WriteRequest(WriteRequest::new(WriteOperation::EXTEND, identity).into()),
            ]
        })
        .collect();
    all.extend([
        Pdu::DataEndRequest(Box::new(DataEndRequest {
            action_result: ActionResult::SUCCESS,
            diagnostic: None,
        })),
        Pdu::DataEndRequest(Box::new(DataEndRequest {
            action_result: ActionResult::PERMANENT_ERROR,
            diagnostic: diagnostic(),
        })),
        Pdu::TransferEndRequest(Box::new(TransferEndRequest::PLAIN)),
        Pdu::TransferEndRequest(Box::new(TransferEndRequest {
            shared_ase_information: shared(),
            request_type: Some(RequestType::READ),
            transfer_number: Some(4),
            last_transfer_end_read_response: Some(3),
            last_transfer_end_write_response: Some(2),
        })),
        Pdu::TransferEndResponse(TransferEndResponse::new(ActionResult::SUCCESS, None).into()),
        Pdu::TransferEndResponse(Box::new(TransferEndResponse {
            shared_ase_information: shared(),
            request_type: Some(RequestType::WRITE),
            transfer_number: Some(4),
            ..TransferEndResponse::new(ActionResult::TRANSIENT_ERROR, diagnostic())
        })),
        Pdu::CancelRequest(cancel.clone().into()),
        Pdu::CancelResponse(cancel.into()),
        Pdu::RestartRequest(restart.clone().into()),
        Pdu::RestartResponse(restart.into()),
    ]);
    all
}

/// Returns FPDUs that omit fields which only the amendments make mandatory, and FPDUs with fields from the
/// amendments on which other decoders disagree.
fn of_either_edition() -> Vec<Pdu> {
    vec![
        Pdu::CancelRequest(Cancel::new(ActionResult::SUCCESS, None).into()),
        Pdu::RestartRequest(Restart::new(0).into()),
        Pdu::RestartResponse(Restart::new(1).into()),
        Pdu::SelectRequest(Box::new(SelectRequest {
            path_access_passwords: Some(PathAccessPasswords(vec![])),
            ..SelectRequest::new("records".into(), AccessRequest::NONE)
        })),
        Pdu::ReadAttributesResponse(Box::new(ReadAttributesResponse {
            action_result: ActionResult::SUCCESS,
            attributes: Some(ReadAttributes {
                access_control: Some(AccessControlAttribute::Actual(SetOf(vec![AccessControlElement {
                    location: Some(Any(b"\x30\x06\x06\x01\x2a\x02\x01\x01".to_vec())),
                    ..element()
                }]))),
                object_type: Some(ObjectType::FILE_DIRECTORY),
                child_objects: Some(SetOf(vec!["one".into(), "two".into()])),
                ..ReadAttributes::NONE
            }),
            diagnostic: None,
        })),
    ]
}

/// Returns all FPDUs that are valid in both editions.
pub(crate) fn common_samples() -> Vec<Pdu> {
    [regime(), selection(), open(), bulk()].concat()
}

/// Returns all FPDUs.
pub(crate) fn samples() -> Vec<Pdu> {
    [common_samples(), of_either_edition()].concat()
}
