//! Document types and their parameters (ISO 8571-2, annex B; NBS-9: the agreements of the OIW).

use super::attributes::{AttributeNames, ContentsType};
use super::oids;
use crate::asn1;
use crate::wire::ber::{Asn1, Integer, Oid, Tag};

asn1! {
    /// The parameters of FTAM-1 and FTAM-2.
    TextParameters ::= SEQUENCE {
        /// The type of the character strings, as a universal tag number. If absent, GraphicString.
        universal_class_number [0] IMPLICIT Integer OPTIONAL,
        /// Maximum length in characters. If absent, unlimited.
        maximum_string_length  [1] IMPLICIT Integer OPTIONAL,
        string_significance    [2] IMPLICIT StringSignificance OPTIONAL,
    }

    /// The parameters of FTAM-3.
    BinaryParameters ::= SEQUENCE {
        /// Maximum length in octets. If absent, unlimited.
        maximum_string_length [1] IMPLICIT Integer OPTIONAL,
        string_significance   [2] IMPLICIT StringSignificance OPTIONAL,
    }

    /// The significance of the boundaries between strings.
    StringSignificance ::= INTEGER {
        /// Boundaries are kept; each string has any length up to the maximum.
        VARIABLE(0),
        /// Each string has exactly the maximum length.
        FIXED(1),
        /// Boundaries have no meaning: the file is the concatenation of the strings.
        NOT_SIGNIFICANT(2),
    }

    /// The parameter of NBS-9: the attributes in each entry of the directory.
    DirectoryParameters ::= [0] IMPLICIT AttributeNames;
}

/// A supported document type, with its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Document {
    /// FTAM-1: unstructured text.
    UnstructuredText(TextParameters),
    /// FTAM-2: sequential text.
    SequentialText(TextParameters),
    /// FTAM-3: unstructured binary.
    UnstructuredBinary(BinaryParameters),
    /// NBS-9: a file directory.
    Directory(DirectoryParameters),
    /// NBS-9 with its old object identifier.
    DirectoryOld(DirectoryParameters),
}

impl Document {
    /// Returns the document type of a contents type: `None` if it is not supported, or its parameter is not
    /// of the expected type. If the contents type has no parameter, all fields are absent, and NBS-9 names no
    /// attribute.
    pub fn of(contents: &ContentsType) -> Option<Document> {
        let ContentsType::DocumentType(document) = contents else { return None };
        let parameter = document.parameter.as_ref().map(|parameter| &parameter.0[..]);
        let name = document.document_type_name.0;
        Some(match name {
            oids::FTAM_1 => Document::UnstructuredText(read(parameter, TextParameters::NONE)?),
            oids::FTAM_2 => Document::SequentialText(read(parameter, TextParameters::NONE)?),
            oids::FTAM_3 => Document::UnstructuredBinary(read(parameter, BinaryParameters::NONE)?),
            oids::NBS_9 => Document::Directory(read(parameter, DirectoryParameters(AttributeNames::NONE))?),
            oids::NBS_9_OLD => {
                Document::DirectoryOld(read(parameter, DirectoryParameters(AttributeNames::NONE))?)
            }
            _ => return None,
        })
    }

    /// Returns the document type name.
    pub const fn name(&self) -> Oid {
        match self {
            Document::UnstructuredText(_) => oids::FTAM_1,
            Document::SequentialText(_) => oids::FTAM_2,
            Document::UnstructuredBinary(_) => oids::FTAM_3,
            Document::Directory(_) => oids::NBS_9,
            Document::DirectoryOld(_) => oids::NBS_9_OLD,
        }
    }

    /// Returns the abstract syntax of the data elements. FTAM-2 also needs [`oids::FADU`].
    pub const fn abstract_syntax(&self) -> Oid {
        match self {
            Document::UnstructuredText(_) | Document::SequentialText(_) => oids::UNSTRUCTURED_TEXT,
            Document::UnstructuredBinary(_) => oids::UNSTRUCTURED_BINARY,
            Document::Directory(_) => oids::NBS_DIRECTORY_ENTRY,
            Document::DirectoryOld(_) => oids::NBS_DIRECTORY_ENTRY_OLD,
        }
    }

    /// Returns the contents type for an FPDU; the parameter is omitted if all of its fields are absent.
    pub fn contents_type(&self) -> ContentsType {
        let parameter = match self {
            Document::UnstructuredText(parameters) | Document::SequentialText(parameters) => {
                (*parameters != TextParameters::NONE).then(|| parameters.to_vec())
            }
            Document::UnstructuredBinary(parameters) => {
                (*parameters != BinaryParameters::NONE).then(|| parameters.to_vec())
            }
            Document::Directory(parameters) | Document::DirectoryOld(parameters) => Some(parameters.to_vec()),
        };
        ContentsType::document(self.name(), parameter)
    }

    /// Returns the tag of the data elements.
    pub fn element_tag(&self) -> Tag {
        match self {
            Document::UnstructuredText(parameters) | Document::SequentialText(parameters) => {
                parameters.string_tag()
            }
            Document::UnstructuredBinary(_) => Tag::OCTET_STRING,
            Document::Directory(_) | Document::DirectoryOld(_) => super::contents::DIRECTORY_ENTRY,
        }
    }
}

/// Decodes the parameter, or returns `absent` if there is none. `None` if the parameter has a different type.
fn read<T: Asn1>(parameter: Option<&[u8]>, absent: T) -> Option<T> {
    match parameter {
        None => Some(absent),
        Some(bytes) => T::read(bytes).ok().map(|(parameter, _)| parameter),
    }
}

impl TextParameters {
    /// No parameters.
    pub const NONE: TextParameters = TextParameters {
        universal_class_number: None,
        maximum_string_length: None,
        string_significance: None,
    };

    /// Returns the tag of the strings: GraphicString if the parameter names no type, or a type that is not a
    /// character string.
    pub fn string_tag(&self) -> Tag {
        match self.universal_class_number {
            Some(number @ (19..=22 | 25..=27)) => Tag::universal(number as u32),
            _ => Tag::GRAPHIC_STRING,
        }
    }
}

impl BinaryParameters {
    /// No parameters.
    pub const NONE: BinaryParameters =
        BinaryParameters { maximum_string_length: None, string_significance: None };
}

/// Returns the abstract syntax for a document type in F-INITIALIZE's contents type list, if the document type
/// is supported.
pub fn abstract_syntax_of(document_type: Oid) -> Option<Oid> {
    Document::of(&ContentsType::document(document_type, None)).map(|document| document.abstract_syntax())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_type_survives_a_round_trip() {
        for (name, parameter, document) in [
            (
                "1.0.8571.5.3",
                &b"\x30\x03\x82\x01\x02"[..],
                Document::UnstructuredBinary(BinaryParameters {
                    maximum_string_length: None,
                    string_significance: Some(StringSignificance::NOT_SIGNIFICANT),
                }),
            ),
            (
                "1.0.8571.5.1",
                b"\x30\x06\x80\x01\x1b\x82\x01\x02",
                Document::UnstructuredText(TextParameters {
                    universal_class_number: Some(27),
                    maximum_string_length: None,
                    string_significance: Some(StringSignificance::NOT_SIGNIFICANT),
                }),
            ),
            (
                "1.3.14.5.5.9",
                b"\x80\x03\x02\xff\xfc",
                Document::Directory(DirectoryParameters(AttributeNames(0x3fff))),
            ),
        ] {
            let contents = ContentsType::document(Oid::of(name), Some(parameter.to_vec()));
            assert_eq!(Document::of(&contents), Some(document.clone()));
            assert_eq!(document.contents_type(), contents);
        }
    }

    #[test]
    fn a_parameter_of_a_wrong_type_is_rejected() {
        assert_eq!(Document::of(&ContentsType::document(oids::FTAM_3, Some(b"\x02\x01\x00".to_vec()))), None);
        assert_eq!(Document::of(&ContentsType::document(Oid::of("1.0.8571.5.9"), None)), None);
        let plain = ContentsType::document(oids::FTAM_1, None);
        assert_eq!(Document::of(&plain), Some(Document::UnstructuredText(TextParameters::NONE)));
        assert_eq!(Document::of(&plain).map(|document| document.contents_type()), Some(plain));
    }

    #[test]
    fn strings_default_to_graphic() {
        for (number, tag) in [(None, 25), (Some(22), 22), (Some(27), 27), (Some(4), 25), (Some(i64::MAX), 25)]
        {
            let parameters = TextParameters { universal_class_number: number, ..TextParameters::NONE };
            assert_eq!(parameters.string_tag(), Tag::universal(tag));
        }
    }
}
