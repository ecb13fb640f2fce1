//! The FPDUs: the data units of ISO 8571-4 in the presentation context "FTAM PCI".

use super::bulk::{
    Cancel, DataEndRequest, ReadRequest, Restart, TransferEndRequest, TransferEndResponse, WriteRequest,
};
use super::common::{ActionResult, Diagnostic, StateResult};
use super::file::{
    BeginGroupRequest, BeginGroupResponse, ChangeAttributesRequest, ChangeAttributesResponse, CloseRequest,
    CloseResponse, CreateRequest, CreateResponse, DeleteRequest, DeleteResponse, DeselectRequest,
    DeselectResponse, EndGroupRequest, EndGroupResponse, EraseRequest, EraseResponse, LocateRequest,
    LocateResponse, OpenRequest, OpenResponse, ReadAttributesRequest, ReadAttributesResponse, RecoverRequest,
    RecoverResponse, SelectRequest, SelectResponse,
};
use super::regime::{
    InitializeRequest, InitializeResponse, ProviderAbort, TerminateRequest, TerminateResponse, UserAbort,
};
use crate::asn1;
use crate::wire::ber::{Asn1, Element, Tag};
use alloc::boxed::Box;
use core::fmt;
use kiban_base::Malformed;

/// Declares the FPDUs: the variant, the tag, the type, the standard's name, and the results that the FPDU
/// has.
macro_rules! fpdus {
    ($($name:ident [$tag:literal] $type:ident, $words:literal $(, $result:ident)*;)*) => {
        asn1! {
            /// An FPDU.
            Pdu ::= CHOICE {
                $(#[doc = $words] $name [$tag] IMPLICIT Box<$type>,)*
            }
        }

        /// The kind of an FPDU: its tag.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Kind {
            $(#[doc = $words] $name = $tag,)*
        }

        impl Kind {
            /// All kinds, in the order of their tags: `ALL[kind as usize] == kind`.
            pub const ALL: &[Kind] = &[$(Kind::$name),*];

            /// Returns the standard's name.
            pub const fn words(self) -> &'static str {
                match self { $(Kind::$name => $words,)* }
            }
        }

        impl Pdu {
            /// Returns the FPDU's kind.
            pub const fn kind(&self) -> Kind {
                match self { $(Pdu::$name(_) => Kind::$name,)* }
            }

            /// Returns the state result, or `None` if the FPDU has none.
            pub fn state_result(&self) -> Option<StateResult> {
                match self { $(Pdu::$name(_pdu) => fpdus!(@state _pdu $(, $result)*),)* }
            }

            /// Returns the action result, or `None` if the FPDU has none.
            pub fn action_result(&self) -> Option<ActionResult> {
                match self { $(Pdu::$name(_pdu) => fpdus!(@action _pdu $(, $result)*),)* }
            }

            /// Returns the diagnostics that accompany the result.
            pub fn diagnostic(&self) -> Option<&Diagnostic> {
                match self { $(Pdu::$name(_pdu) => fpdus!(@diagnostic _pdu $(, $result)*),)* }
            }
        }
    };

    (@state $pdu:ident, state $(, $more:ident)*) => { Some($pdu.state_result) };
    (@state $pdu:ident $(, $more:ident)*) => { None };
    (@action $pdu:ident, state, action $(, $more:ident)*) => { Some($pdu.action_result) };
    (@action $pdu:ident, action $(, $more:ident)*) => { Some($pdu.action_result) };
    (@action $pdu:ident $(, $more:ident)*) => { None };
    (@diagnostic $pdu:ident, $($more:ident),+) => { $pdu.diagnostic.as_ref() };
    (@diagnostic $pdu:ident) => { None };
}

fpdus! {
    InitializeRequest [0] InitializeRequest, "F-INITIALIZE request";
    InitializeResponse [1] InitializeResponse, "F-INITIALIZE response", state, action;
    TerminateRequest [2] TerminateRequest, "F-TERMINATE request";
    TerminateResponse [3] TerminateResponse, "F-TERMINATE response";
    UserAbort [4] UserAbort, "F-U-ABORT request", action;
    ProviderAbort [5] ProviderAbort, "F-P-ABORT request", action;
    SelectRequest [6] SelectRequest, "F-SELECT request";
    SelectResponse [7] SelectResponse, "F-SELECT response", state, action;
    DeselectRequest [8] DeselectRequest, "F-DESELECT request";
    DeselectResponse [9] DeselectResponse, "F-DESELECT response", action;
    CreateRequest [10] CreateRequest, "F-CREATE request";
    CreateResponse [11] CreateResponse, "F-CREATE response", state, action;
    DeleteRequest [12] DeleteRequest, "F-DELETE request";
    DeleteResponse [13] DeleteResponse, "F-DELETE response", action;
    ReadAttributesRequest [14] ReadAttributesRequest, "F-READ-ATTRIB request";
    ReadAttributesResponse [15] ReadAttributesResponse, "F-READ-ATTRIB response", action;
    ChangeAttributesRequest [16] ChangeAttributesRequest, "F-CHANGE-ATTRIB request";
    ChangeAttributesResponse [17] ChangeAttributesResponse, "F-CHANGE-ATTRIB response", action;
    OpenRequest [18] OpenRequest, "F-OPEN request";
    OpenResponse [19] OpenResponse, "F-OPEN response", state, action;
    CloseRequest [20] CloseRequest, "F-CLOSE request", action;
    CloseResponse [21] CloseResponse, "F-CLOSE response", action;
    BeginGroupRequest [22] BeginGroupRequest, "F-BEGIN-GROUP request";
    BeginGroupResponse [23] BeginGroupResponse, "F-BEGIN-GROUP response";
    EndGroupRequest [24] EndGroupRequest, "F-END-GROUP request";
    EndGroupResponse [25] EndGroupResponse, "F-END-GROUP response";
    RecoverRequest [26] RecoverRequest, "F-RECOVER request";
    RecoverResponse [27] RecoverResponse, "F-RECOVER response", state, action;
    LocateRequest [28] LocateRequest, "F-LOCATE request";
    LocateResponse [29] LocateResponse, "F-LOCATE response", action;
    EraseRequest [30] EraseRequest, "F-ERASE request";
    EraseResponse [31] EraseResponse, "F-ERASE response", action;
    ReadRequest [32] ReadRequest, "F-READ request";
    WriteRequest [33] WriteRequest, "F-WRITE request";
    DataEndRequest [34] DataEndRequest, "F-DATA-END request", action;
    TransferEndRequest [35] TransferEndRequest, "F-TRANSFER-END request";
    TransferEndResponse [36] TransferEndResponse, "F-TRANSFER-END response", action;
    CancelRequest [37] Cancel, "F-CANCEL request", action;
    CancelResponse [38] Cancel, "F-CANCEL response", action;
    RestartRequest [39] Restart, "F-RESTART request";
    RestartResponse [40] Restart, "F-RESTART response";
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl Kind {
    /// Returns the kind of FPDU with this tag.
    pub fn of(tag: Tag) -> Option<Kind> {
        let kind = *Kind::ALL.get(usize::try_from(tag.number).ok()?)?;
        (tag == Tag::context(tag.number)).then_some(kind)
    }

    /// Returns the kind of the response to this request, or `None` for a response or an unconfirmed request.
    pub const fn response(self) -> Option<Kind> {
        Some(match self {
            Kind::InitializeRequest => Kind::InitializeResponse,
            Kind::TerminateRequest => Kind::TerminateResponse,
            Kind::SelectRequest => Kind::SelectResponse,
            Kind::DeselectRequest => Kind::DeselectResponse,
            Kind::CreateRequest => Kind::CreateResponse,
            Kind::DeleteRequest => Kind::DeleteResponse,
            Kind::ReadAttributesRequest => Kind::ReadAttributesResponse,
            Kind::ChangeAttributesRequest => Kind::ChangeAttributesResponse,
            Kind::OpenRequest => Kind::OpenResponse,
            Kind::CloseRequest => Kind::CloseResponse,
            Kind::BeginGroupRequest => Kind::BeginGroupResponse,
            Kind::EndGroupRequest => Kind::EndGroupResponse,
            Kind::RecoverRequest => Kind::RecoverResponse,
            Kind::LocateRequest => Kind::LocateResponse,
            Kind::EraseRequest => Kind::EraseResponse,
            Kind::TransferEndRequest => Kind::TransferEndResponse,
            Kind::CancelRequest => Kind::CancelResponse,
            Kind::RestartRequest => Kind::RestartResponse,
            _ => return None,
        })
    }
}

impl Pdu {
    /// Decodes at most `most` consecutive FPDUs, for example those in an octet-aligned presentation data
    /// value.
    ///
    /// # Errors
    /// The BER or ASN.1 rule that the bytes break; `Alternative` for an unknown FPDU, or for more than `most`
    /// FPDUs.
    pub fn read_all(mut bytes: &[u8], most: usize, see: &mut dyn FnMut(Pdu)) -> Result<(), Malformed> {
        for _ in 0..most {
            if bytes.is_empty() {
                return Ok(());
            }
            let (element, count) = Element::read(bytes)?;
            if !Pdu::begins(element.tag) {
                return Err(Malformed::Alternative);
            }
            see(Pdu::from_element(&element)?);
            bytes = &bytes[count..];
        }
        if bytes.is_empty() { Ok(()) } else { Err(Malformed::Alternative) }
    }
}
