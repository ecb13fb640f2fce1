//! FTAM's diagnostics by number (ISO 8571-3, diagnostic parameter values).
//!
//! Purpose   maps the number in an FPDU to a name for use in code, and to the standard's wording.
//! Numbers   the thousands digit gives the subject: 0 general, 1 protocol and supporting service, 2
//!           association, 3 selection, 4 file management, 5 access, 6 recovery.
//! Limits    an unassigned number is passed on unchanged, and has no wording.

use core::fmt;

/// The error-identifier of a diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorIdentifier(pub i64);

/// Declares the assigned numbers, each with a name and its wording.
macro_rules! diagnostics {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        impl ErrorIdentifier {
            $(#[doc = $words] pub const $name: ErrorIdentifier = ErrorIdentifier($number);)*

            /// All assigned numbers, in order.
            pub const ALL: &[ErrorIdentifier] = &[$(ErrorIdentifier::$name),*];

            /// Returns the standard's wording, if the number is assigned.
            pub const fn words(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($words),)*
                    _ => None,
                }
            }
        }
    };
}

impl fmt::Debug for ErrorIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => write!(f, "{} {words}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

diagnostics! {
    NO_REASON = 0, "no reason";
    RESPONDER_ERROR = 1, "responder error (unspecific)";
    SYSTEM_SHUTDOWN = 2, "system shutdown";
    MANAGEMENT_PROBLEM = 3, "FTAM management problem (unspecific)";
    MANAGEMENT_BAD_ACCOUNT = 4, "FTAM management, bad account";
    MANAGEMENT_SECURITY = 5, "FTAM management, security not passed";
    DELAY = 6, "delay may be encountered";
    INITIATOR_ERROR = 7, "initiator error (unspecific)";
    SUBSEQUENT_ERROR = 8, "subsequent error";
    RESOURCES = 9, "temporal insufficiency of resources";
    VIRTUAL_FILESTORE_SECURITY = 10, "access request violates VFS security";
    LOCAL_SECURITY = 11, "access request violates local security";

    CONFLICTING_PARAMETERS = 1000, "conflicting parameter values";
    PARAMETER_VALUE_UNSUPPORTED = 1001, "unsupported parameter values";
    PARAMETER_MISSING = 1002, "mandatory parameter not set";
    PARAMETER_UNSUPPORTED = 1003, "unsupported parameter";
    PARAMETER_DUPLICATED = 1004, "duplicated parameter";
    PARAMETER_TYPE_ILLEGAL = 1005, "illegal parameter type";
    PARAMETER_TYPE_UNSUPPORTED = 1006, "unsupported parameter type";
    PROTOCOL_ERROR = 1007, "FTAM protocol error (unspecific)";
    PROCEDURE_ERROR = 1008, "FTAM protocol error, procedure error";
    FUNCTIONAL_UNIT_ERROR = 1009, "FTAM protocol error, functional unit error";
    CORRUPTION_ERROR = 1010, "FTAM protocol error, corruption error";
    LOWER_LAYER_FAILURE = 1011, "lower layer failure";
    LOWER_LAYER_ADDRESSING = 1012, "lower layer addressing error";
    TIMEOUT = 1013, "timeout";
    PROTOCOL_SHUTDOWN = 1014, "system shutdown";
    GROUPING_SEQUENCE = 1015, "illegal grouping sequence";
    GROUPING_THRESHOLD = 1016, "grouping threshold violation";
    REQUESTED_ACCESS_INCONSISTENT = 1017, "specific PDU request inconsistent with the current requested access";

    USER_NOT_ALLOWED = 2000, "association with user not allowed";
    SERVICE_CLASS_UNSUPPORTED = 2002, "unsupported service class";
    FUNCTIONAL_UNIT_UNSUPPORTED = 2003, "unsupported functional unit";
    ATTRIBUTE_GROUP_ERROR = 2004, "attribute group error (unspecific)";
    ATTRIBUTE_GROUP_UNSUPPORTED = 2005, "attribute group not supported";
    ATTRIBUTE_GROUP_NOT_ALLOWED = 2006, "attribute group not allowed";
    ASSOCIATION_BAD_ACCOUNT = 2007, "bad account";
    ASSOCIATION_MANAGEMENT = 2008, "association management (unspecific)";
    ASSOCIATION_MANAGEMENT_ADDRESS = 2009, "association management, bad address";
    ASSOCIATION_MANAGEMENT_ACCOUNT = 2010, "association management, bad account";
    CHECKPOINT_WINDOW_LARGE = 2011, "checkpoint window error, too large";
    CHECKPOINT_WINDOW_SMALL = 2012, "checkpoint window error, too small";
    CHECKPOINT_WINDOW_UNSUPPORTED = 2013, "checkpoint window error, unsupported";
    QUALITY_UNSUPPORTED = 2014, "communications QoS not supported";
    INITIATOR_IDENTITY = 2015, "initiator identity unacceptable";
    CONTEXT_MANAGEMENT_REFUSED = 2016, "context management refused";
    ROLLBACK_NOT_AVAILABLE = 2017, "rollback not available";
    CONTENTS_TYPES_CUT_BY_RESPONDER = 2018, "contents type list cut by responder";
    CONTENTS_TYPES_CUT_BY_PRESENTATION = 2019, "contents type list cut by presentation service";
    FILESTORE_PASSWORD = 2020, "invalid filestore password";
    SERVICE_CLASSES_INCOMPATIBLE = 2021, "incompatible service classes";

    FILENAME_NOT_FOUND = 3000, "filename not found";
    SELECTION_NOT_MATCHED = 3001, "selection attributes not matched";
    INITIAL_ATTRIBUTES_NOT_POSSIBLE = 3002, "initial attributes not possible";
    SELECTION_BAD_ATTRIBUTE_NAME = 3003, "bad attribute name";
    FILE_NON_EXISTENT = 3004, "non-existent file";
    FILE_EXISTS = 3005, "file already exists";
    FILE_CANNOT_BE_CREATED = 3006, "file cannot be created";
    FILE_CANNOT_BE_DELETED = 3007, "file cannot be deleted";
    SELECTION_CONCURRENCY_NOT_AVAILABLE = 3008, "concurrency control not available";
    SELECTION_CONCURRENCY_UNSUPPORTED = 3009, "concurrency control not supported";
    SELECTION_CONCURRENCY_NOT_POSSIBLE = 3010, "concurrency control not possible";
    MORE_RESTRICTIVE_LOCK = 3011, "more restrictive lock";
    FILE_BUSY = 3012, "file busy";
    FILE_NOT_AVAILABLE = 3013, "file not available";
    SELECTION_ACCESS_CONTROL_NOT_AVAILABLE = 3014, "access control not available";
    SELECTION_ACCESS_CONTROL_UNSUPPORTED = 3015, "access control not supported";
    SELECTION_ACCESS_CONTROL_INCONSISTENT = 3016, "access control inconsistent";
    FILENAME_TRUNCATED = 3017, "filename truncated";
    INITIAL_ATTRIBUTES_ALTERED = 3018, "initial attributes altered";
    SELECTION_BAD_ACCOUNT = 3019, "bad account";
    OVERRIDE_SELECTED = 3020, "override selected existing file";
    OVERRIDE_RECREATED_OLD = 3021, "override deleted and recreated file with old attributes";
    OVERRIDE_RECREATED_NEW = 3022, "create override deleted and recreated file with new attributes";
    OVERRIDE_NOT_POSSIBLE = 3023, "create override not possible";
    FILE_AMBIGUOUS = 3024, "ambiguous file specification";
    CREATE_PASSWORD = 3025, "invalid create password";
    DELETE_PASSWORD = 3026, "invalid delete password on override";
    SELECTION_BAD_ATTRIBUTE_VALUE = 3027, "bad attribute value";
    PERMITTED_ACTIONS_VIOLATED = 3028, "requested access violates permitted actions";
    ACCESS_FUNCTIONAL_UNIT = 3029, "functional unit not available for requested access";
    CREATED_NOT_SELECTED = 3030, "file created but not selected";

    ATTRIBUTE_NON_EXISTENT = 4000, "attribute non-existent";
    ATTRIBUTE_CANNOT_BE_READ = 4001, "attribute cannot be read";
    ATTRIBUTE_CANNOT_BE_CHANGED = 4002, "attribute cannot be changed";
    ATTRIBUTE_UNSUPPORTED = 4003, "attribute not supported";
    BAD_ATTRIBUTE_NAME = 4004, "bad attribute name";
    BAD_ATTRIBUTE_VALUE = 4005, "bad attribute value";
    ATTRIBUTE_PARTIALLY_SUPPORTED = 4006, "attribute partially supported";
    SET_ATTRIBUTE_NOT_DISTINCT = 4007, "additional set attribute not distinct";

    BAD_FADU = 5000, "bad FADU (unspecific)";
    BAD_FADU_SIZE = 5001, "bad FADU, size error";
    BAD_FADU_TYPE = 5002, "bad FADU, type error";
    BAD_FADU_SPECIFIED = 5003, "bad FADU, poorly specified";
    BAD_FADU_LOCATION = 5004, "bad FADU, bad location";
    FADU_NON_EXISTENT = 5005, "FADU does not exist";
    FADU_NOT_AVAILABLE = 5006, "FADU not available (unspecific)";
    FADU_NOT_AVAILABLE_READING = 5007, "FADU not available for reading";
    FADU_NOT_AVAILABLE_WRITING = 5008, "FADU not available for writing";
    FADU_NOT_AVAILABLE_LOCATION = 5009, "FADU not available for location";
    FADU_NOT_AVAILABLE_ERASURE = 5010, "FADU not available for erasure";
    FADU_CANNOT_BE_INSERTED = 5011, "FADU cannot be inserted";
    FADU_CANNOT_BE_REPLACED = 5012, "FADU cannot be replaced";
    FADU_CANNOT_BE_LOCATED = 5013, "FADU cannot be located";
    BAD_DATA_ELEMENT_TYPE = 5014, "bad data element type";
    OPERATION_NOT_AVAILABLE = 5015, "operation not available";
    OPERATION_UNSUPPORTED = 5016, "operation not supported";
    OPERATION_INCONSISTENT = 5017, "operation inconsistent";
    ACCESS_CONCURRENCY_NOT_AVAILABLE = 5018, "concurrency control not available";
    ACCESS_CONCURRENCY_UNSUPPORTED = 5019, "concurrency control not supported";
    ACCESS_CONCURRENCY_INCONSISTENT = 5020, "concurrency control inconsistent";
    PROCESSING_MODE_NOT_AVAILABLE = 5021, "processing mode not available";
    PROCESSING_MODE_UNSUPPORTED = 5022, "processing mode not supported";
    PROCESSING_MODE_INCONSISTENT = 5023, "processing mode inconsistent";
    ACCESS_CONTEXT_NOT_AVAILABLE = 5024, "access context not available";
    ACCESS_CONTEXT_UNSUPPORTED = 5025, "access context not supported";
    BAD_WRITE = 5026, "bad write (unspecific)";
    BAD_READ = 5027, "bad read (unspecific)";
    LOCAL_FAILURE = 5028, "local failure (unspecific)";
    LOCAL_FAILURE_SPACE = 5029, "local failure, file space exhausted";
    LOCAL_FAILURE_DATA = 5030, "local failure, data corrupted";
    LOCAL_FAILURE_DEVICE = 5031, "local failure, device failure";
    FUTURE_FILE_SIZE_EXCEEDED = 5032, "future file size exceeded";
    FUTURE_FILE_SIZE_INCREASED = 5034, "future file size increased";
    PROCESSING_MODE_FUNCTIONAL_UNIT = 5035, "functional unit invalid in processing mode";
    CONTENTS_TYPE_INCONSISTENT = 5036, "contents type inconsistent";
    CONTENTS_TYPE_SIMPLIFIED = 5037, "contents type simplified";
    DUPLICATE_FADU_NAME = 5038, "duplicate FADU name";
    REGIME_DAMAGED = 5039, "damage to select/open regime";
    FADU_LOCKING_NOT_AVAILABLE = 5040, "FADU locking not available on file";
    FADU_LOCKED = 5041, "FADU locked by another user";

    BAD_CHECKPOINT = 6000, "bad checkpoint (unspecific)";
    ACTIVITY_NOT_UNIQUE = 6001, "activity not unique";
    CHECKPOINT_OUTSIDE_WINDOW = 6002, "checkpoint outside window";
    ACTIVITY_NO_LONGER_EXISTS = 6003, "activity no longer exists";
    ACTIVITY_NOT_RECOGNIZED = 6004, "activity not recognized";
    NO_DOCKET = 6005, "no docket";
    CORRUPT_DOCKET = 6006, "corrupt docket";
    FILE_WAITING_RESTART = 6007, "file waiting restart";
    BAD_RECOVERY_POINT = 6008, "bad recovery point";
    RECOVERY_POINT_NON_EXISTENT = 6009, "non-existent recovery point";
    RECOVERY_MODE_NOT_AVAILABLE = 6010, "recovery mode not available";
    RECOVERY_MODE_INCONSISTENT = 6011, "recovery mode inconsistent";
    RECOVERY_MODE_REDUCED = 6012, "recovery mode reduced";
    RECOVERY_ACCESS_CONTROL_NOT_AVAILABLE = 6013, "access control not available";
    RECOVERY_ACCESS_CONTROL_UNSUPPORTED = 6014, "access control not supported";
    RECOVERY_ACCESS_CONTROL_INCONSISTENT = 6015, "access control inconsistent";
    RECOVERY_CONTENTS_TYPE_INCONSISTENT = 6016, "contents type inconsistent";
    RECOVERY_CONTENTS_TYPE_SIMPLIFIED = 6017, "contents type simplified";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sorted_and_have_texts() {
        assert!(ErrorIdentifier::ALL.is_sorted_by(|a, b| a < b));
        assert!(ErrorIdentifier::ALL.iter().all(|number| number.words().is_some()));
        let count =
            |thousands| ErrorIdentifier::ALL.iter().filter(|number| number.0 / 1000 == thousands).count();
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(count), [12, 18, 21, 31, 8, 41, 18]);
    }

    #[test]
    fn an_unassigned_number_has_no_text() {
        for number in [12, 1018, 2001, 5033, 7000, -1] {
            assert_eq!(ErrorIdentifier(number).words(), None, "{number}");
        }
        assert_eq!(alloc::format!("{}", ErrorIdentifier(3000)), "3000 filename not found");
        assert_eq!(alloc::format!("{}", ErrorIdentifier(7000)), "7000");
    }
}
