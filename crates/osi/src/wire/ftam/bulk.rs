//! FPDUs of the data transfer regime (tags 32 to 40).
//!
//! Data      F-DATA has no FPDU: data elements are sent as values in separate presentation contexts
//!           ([`super::contents`]).
//! Check     F-CHECK has no FPDU either: it is a minor synchronisation point. Only overlapped access
//!           (amendment 2) puts a [`CheckRequest`] and a [`CheckResponse`] into its user data.

use super::common::{
    AccessContext, ActionResult, Diagnostic, FaduIdentity, FaduLock, RequestType, SharedAseInformation,
};
use crate::asn1;
use crate::wire::ber::Integer;

asn1! {
    /// F-READ request.
    ReadRequest ::= SEQUENCE {
        file_access_data_unit_identity FaduIdentity,
        access_context                 AccessContext,
        fadu_lock                      FaduLock OPTIONAL,
        transfer_number                [0] IMPLICIT Integer OPTIONAL,
    }

    /// F-WRITE request.
    WriteRequest ::= SEQUENCE {
        file_access_data_unit_operation [0] IMPLICIT WriteOperation,
        file_access_data_unit_identity  FaduIdentity,
        fadu_lock                       FaduLock OPTIONAL,
        transfer_number                 [1] IMPLICIT Integer OPTIONAL,
    }

    /// Whether the data unit is to be inserted, replaced or extended.
    WriteOperation ::= INTEGER { INSERT(0), REPLACE(1), EXTEND(2) }

    /// F-DATA-END request.
    DataEndRequest ::= SEQUENCE {
        action_result ActionResult DEFAULT ActionResult::SUCCESS,
        diagnostic    Diagnostic OPTIONAL,
    }

    /// F-TRANSFER-END request.
    TransferEndRequest ::= SEQUENCE {
        shared_ase_information           SharedAseInformation OPTIONAL,
        request_type                     RequestType OPTIONAL,
        transfer_number                  [0] IMPLICIT Integer OPTIONAL,
        last_transfer_end_read_response  [1] IMPLICIT Integer OPTIONAL,
        last_transfer_end_write_response [2] IMPLICIT Integer OPTIONAL,
    }

    /// F-TRANSFER-END response.
    TransferEndResponse ::= SEQUENCE {
        action_result          ActionResult DEFAULT ActionResult::SUCCESS,
        shared_ase_information SharedAseInformation OPTIONAL,
        diagnostic             Diagnostic OPTIONAL,
        request_type           RequestType OPTIONAL,
        transfer_number        [0] IMPLICIT Integer OPTIONAL,
    }

    /// F-CANCEL request and response, which have the same fields.
    Cancel ::= SEQUENCE {
        action_result                    ActionResult DEFAULT ActionResult::SUCCESS,
        shared_ase_information           SharedAseInformation OPTIONAL,
        diagnostic                       Diagnostic OPTIONAL,
        request_type                     RequestType OPTIONAL,
        transfer_number                  [0] IMPLICIT Integer OPTIONAL,
        last_transfer_end_read_request   [1] IMPLICIT Integer OPTIONAL,
        last_transfer_end_read_response  [2] IMPLICIT Integer OPTIONAL,
        last_transfer_end_write_request  [3] IMPLICIT Integer OPTIONAL,
        last_transfer_end_write_response [4] IMPLICIT Integer OPTIONAL,
    }

    /// F-RESTART request and response, which have the same fields.
    Restart ::= SEQUENCE {
        /// The checkpoint from which data is to be resent; 0 is the beginning.
        checkpoint_identifier            [0] IMPLICIT Integer,
        request_type                     RequestType OPTIONAL,
        /// Present only with overlapped access; the first edition does not have this field.
        transfer_number                  [1] IMPLICIT Integer OPTIONAL,
        last_transfer_end_read_request   [2] IMPLICIT Integer OPTIONAL,
        last_transfer_end_read_response  [3] IMPLICIT Integer OPTIONAL,
        last_transfer_end_write_request  [4] IMPLICIT Integer OPTIONAL,
        last_transfer_end_write_response [5] IMPLICIT Integer OPTIONAL,
    }

    /// F-CHECK request, as user data of a synchronisation point; used only with overlapped access.
    CheckRequest ::= SEQUENCE {
        checkpoint_identifier [0] IMPLICIT Integer,
        transfer_number       [1] IMPLICIT Integer,
    }

    /// F-CHECK response, as user data of a synchronisation point; used only with overlapped access.
    CheckResponse ::= SEQUENCE {
        checkpoint_identifier [0] IMPLICIT Integer,
        transfer_number       [1] IMPLICIT Integer,
    }
}

impl ReadRequest {
    /// Builds a request to read the given data unit in the given access context.
    pub fn new(identity: FaduIdentity, context: AccessContext) -> ReadRequest {
        ReadRequest {
            file_access_data_unit_identity: identity,
            access_context: context,
            fadu_lock: None,
            transfer_number: None,
        }
    }
}

impl WriteRequest {
    /// Builds a request to perform the given operation on the given data unit.
    pub fn new(operation: WriteOperation, identity: FaduIdentity) -> WriteRequest {
        WriteRequest {
            file_access_data_unit_operation: operation,
            file_access_data_unit_identity: identity,
            fadu_lock: None,
            transfer_number: None,
        }
    }
}

impl TransferEndRequest {
    /// A request without optional parameters.
    pub const PLAIN: TransferEndRequest = TransferEndRequest {
        shared_ase_information: None,
        request_type: None,
        transfer_number: None,
        last_transfer_end_read_response: None,
        last_transfer_end_write_response: None,
    };
}

impl TransferEndResponse {
    /// Builds a response with this result.
    pub fn new(action_result: ActionResult, diagnostic: Option<Diagnostic>) -> TransferEndResponse {
        TransferEndResponse {
            action_result,
            shared_ase_information: None,
            diagnostic,
            request_type: None,
            transfer_number: None,
        }
    }
}

impl Cancel {
    /// Builds a request or response with this result.
    pub fn new(action_result: ActionResult, diagnostic: Option<Diagnostic>) -> Cancel {
        Cancel {
            action_result,
            shared_ase_information: None,
            diagnostic,
            request_type: None,
            transfer_number: None,
            last_transfer_end_read_request: None,
            last_transfer_end_read_response: None,
            last_transfer_end_write_request: None,
            last_transfer_end_write_response: None,
        }
    }
}

impl Restart {
    /// Builds a request or response for this checkpoint.
    pub fn new(checkpoint: i64) -> Restart {
        Restart {
            checkpoint_identifier: checkpoint,
            request_type: None,
            transfer_number: None,
            last_transfer_end_read_request: None,
            last_transfer_end_read_response: None,
            last_transfer_end_write_request: None,
            last_transfer_end_write_response: None,
        }
    }
}
