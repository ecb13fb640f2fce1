//! FPDUs that begin and end the FTAM regime (tags 0 to 5).

use super::common::{
    AbstractSyntaxName, Account, ActionResult, Charging, Diagnostic, DocumentTypeName, Password,
    SharedAseInformation, StateResult, UserIdentity,
};
use crate::asn1;
use crate::wire::ber::{Boolean, GraphicString, Integer};

asn1! {
    /// F-INITIALIZE request.
    InitializeRequest ::= SEQUENCE {
        protocol_version                ProtocolVersion DEFAULT ProtocolVersion::VERSION_1,
        implementation_information      ImplementationInformation OPTIONAL,
        presentation_context_management [2] IMPLICIT Boolean DEFAULT false,
        service_class                   ServiceClass DEFAULT ServiceClass::TRANSFER,
        functional_units                FunctionalUnits,
        attribute_groups                AttributeGroups DEFAULT AttributeGroups::NONE,
        shared_ase_information          SharedAseInformation OPTIONAL,
        ftam_quality_of_service         QualityOfService,
        contents_type_list              ContentsTypeList OPTIONAL,
        initiator_identity              UserIdentity OPTIONAL,
        account                         Account OPTIONAL,
        filestore_password              Password OPTIONAL,
        /// Maximum number of unanswered checkpoints; used only with recovery or restart.
        checkpoint_window               [8] IMPLICIT Integer DEFAULT 1,
    }

    /// F-INITIALIZE response.
    InitializeResponse ::= SEQUENCE {
        state_result                    StateResult DEFAULT StateResult::SUCCESS,
        action_result                   ActionResult DEFAULT ActionResult::SUCCESS,
        protocol_version                ProtocolVersion DEFAULT ProtocolVersion::VERSION_1,
        implementation_information      ImplementationInformation OPTIONAL,
        presentation_context_management [2] IMPLICIT Boolean DEFAULT false,
        service_class                   ServiceClass DEFAULT ServiceClass::TRANSFER,
        functional_units                FunctionalUnits,
        attribute_groups                AttributeGroups DEFAULT AttributeGroups::NONE,
        shared_ase_information          SharedAseInformation OPTIONAL,
        ftam_quality_of_service         QualityOfService,
        contents_type_list              ContentsTypeList OPTIONAL,
        diagnostic                      Diagnostic OPTIONAL,
        checkpoint_window               [8] IMPLICIT Integer DEFAULT 1,
    }

    /// Versions of the protocol.
    ProtocolVersion ::= [0] IMPLICIT BIT STRING { VERSION_1(0), VERSION_2(1) }

    /// Information about the implementation, which has no effect on the protocol.
    ImplementationInformation ::= [1] IMPLICIT GraphicString;

    /// The proposed or selected service classes.
    ServiceClass ::= [3] IMPLICIT BIT STRING {
        UNCONSTRAINED(0), MANAGEMENT(1), TRANSFER(2), TRANSFER_AND_MANAGEMENT(3), ACCESS(4),
    }

    /// The proposed or selected functional units, in addition to the kernel.
    FunctionalUnits ::= [4] IMPLICIT BIT STRING {
        READ(2), WRITE(3), FILE_ACCESS(4), LIMITED_FILE_MANAGEMENT(5), ENHANCED_FILE_MANAGEMENT(6), GROUPING(7),
        FADU_LOCKING(8), RECOVERY(9), RESTART_DATA_TRANSFER(10), LIMITED_FILESTORE_MANAGEMENT(11),
        ENHANCED_FILESTORE_MANAGEMENT(12), OBJECT_MANIPULATION(13), GROUP_MANIPULATION(14), CONSECUTIVE_ACCESS(15),
        CONCURRENT_ACCESS(16),
    }

    /// The attribute groups in addition to the kernel group.
    AttributeGroups ::= [5] IMPLICIT BIT STRING { STORAGE(0), SECURITY(1), PRIVATE(2), EXTENSION(3) }

    /// The FTAM quality of service: the classes of errors that the service recovers from.
    QualityOfService ::= [6] IMPLICIT INTEGER {
        NO_RECOVERY(0), CLASS_1_RECOVERY(1), CLASS_2_RECOVERY(2), CLASS_3_RECOVERY(3),
    }

    /// The contents types to be transferred.
    ContentsTypeList ::= [7] IMPLICIT SEQUENCE OF ContentsTypeName;

    /// A contents type by name.
    ContentsTypeName ::= CHOICE {
        Document       DocumentTypeName,
        AbstractSyntax AbstractSyntaxName,
    }

    /// F-TERMINATE request.
    TerminateRequest ::= SEQUENCE {
        shared_ase_information SharedAseInformation OPTIONAL,
    }

    /// F-TERMINATE response.
    TerminateResponse ::= SEQUENCE {
        shared_ase_information SharedAseInformation OPTIONAL,
        charging               Charging OPTIONAL,
    }

    /// F-U-ABORT request: abort by the user.
    UserAbort ::= SEQUENCE {
        action_result ActionResult DEFAULT ActionResult::SUCCESS,
        diagnostic    Diagnostic OPTIONAL,
    }

    /// F-P-ABORT request: abort by the protocol machine.
    ProviderAbort ::= SEQUENCE {
        action_result ActionResult DEFAULT ActionResult::SUCCESS,
        diagnostic    Diagnostic OPTIONAL,
    }
}

impl InitializeRequest {
    /// Builds a proposal of this class and these units, with version 1, no attribute groups and no recovery.
    pub fn new(service_class: ServiceClass, functional_units: FunctionalUnits) -> InitializeRequest {
        InitializeRequest {
            protocol_version: ProtocolVersion::VERSION_1,
            implementation_information: None,
            presentation_context_management: false,
            service_class,
            functional_units,
            attribute_groups: AttributeGroups::NONE,
            shared_ase_information: None,
            ftam_quality_of_service: QualityOfService::NO_RECOVERY,
            contents_type_list: None,
            initiator_identity: None,
            account: None,
            filestore_password: None,
            checkpoint_window: 1,
        }
    }
}

impl InitializeResponse {
    /// Builds an acceptance of this class and these units, with version 1, no attribute groups and no
    /// recovery.
    pub fn new(service_class: ServiceClass, functional_units: FunctionalUnits) -> InitializeResponse {
        InitializeResponse {
            state_result: StateResult::SUCCESS,
            action_result: ActionResult::SUCCESS,
            protocol_version: ProtocolVersion::VERSION_1,
            implementation_information: None,
            presentation_context_management: false,
            service_class,
            functional_units,
            attribute_groups: AttributeGroups::NONE,
            shared_ase_information: None,
            ftam_quality_of_service: QualityOfService::NO_RECOVERY,
            contents_type_list: None,
            diagnostic: None,
            checkpoint_window: 1,
        }
    }
}
