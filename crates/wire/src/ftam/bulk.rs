//! FPDUs of the data transfer regime (tags 32 to 40).
//!
//! Data      has no FPDU: data elements are values in presentation contexts of their own ([`super::contents`]).
//! Check     has none either: it is a minor synchronisation point. Only overlapped access (amendment 2) puts a
//!           [`CheckRequest`] and a [`CheckResponse`] into its user data.

use super::common::{
    AccessContext, ActionResult, Diagnostic, FaduIdentity, FaduLock, RequestType, SharedAseInformation,
};
use crate::asn1;
use crate::ber::Integer;

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

    /// What becomes of the data unit.
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

    /// F-CANCEL request and response, which are alike.
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

    /// F-RESTART request and response, which are alike.
    Restart ::= SEQUENCE {
        /// From which checkpoint data is sent again; 0 is the beginning.
        checkpoint_identifier            [0] IMPLICIT Integer,
        request_type                     RequestType OPTIONAL,
        /// With overlapped access alone: the first edition has no such field.
        transfer_number                  [1] IMPLICIT Integer OPTIONAL,
        last_transfer_end_read_request   [2] IMPLICIT Integer OPTIONAL,
        last_transfer_end_read_response  [3] IMPLICIT Integer OPTIONAL,
        last_transfer_end_write_request  [4] IMPLICIT Integer OPTIONAL,
        last_transfer_end_write_response [5] IMPLICIT Integer OPTIONAL,
    }

    /// F-CHECK request, as user data of a synchronisation point; with overlapped access alone.
    CheckRequest ::= SEQUENCE {
        checkpoint_identifier [0] IMPLICIT Integer,
        transfer_number       [1] IMPLICIT Integer,
    }

    /// F-CHECK response, likewise.
    CheckResponse ::= SEQUENCE {
        checkpoint_identifier [0] IMPLICIT Integer,
        transfer_number       [1] IMPLICIT Integer,
    }
}

impl ReadRequest {
    /// A request for this data unit in this access context.
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
    /// A request to write this data unit in this way.
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
    /// The transfer is at its end.
    pub const PLAIN: TransferEndRequest = TransferEndRequest {
        shared_ase_information: None,
        request_type: None,
        transfer_number: None,
        last_transfer_end_read_response: None,
        last_transfer_end_write_response: None,
    };
}

impl TransferEndResponse {
    /// The transfer has ended with this result.
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
    /// The transfer is given up with this result.
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
    /// From this checkpoint.
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
