//! Bodies of requests: JSON, YAML, or protobuf of built-in kinds.

use serde_json::Value;

use super::protobuf::{self, Unreadable};
use super::request::Request;
use super::status::Status;

/// The media type of a body, from its Content-Type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Media {
    Json,
    Yaml,
    Protobuf,
    /// CBOR, which client-go tries only where a server offers it.
    Other,
}

impl Media {
    fn of(content_type: &str) -> Self {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/yaml" | "application/apply-patch+yaml" => Self::Yaml,
            media if media.contains("protobuf") => Self::Protobuf,
            media if media.contains("cbor") => Self::Other,
            _ => Self::Json,
        }
    }
}

/// The body as JSON; an empty one is null.
pub fn read(request: &Request) -> Result<Value, Status> {
    if request.body.is_empty() {
        return Ok(Value::Null);
    }
    match Media::of(&request.content_type) {
        Media::Json => json(request),
        // Most clients write JSON, which is YAML.
        Media::Yaml => serde_json::from_slice(&request.body).or_else(|_| yaml(request)),
        Media::Protobuf => protobuf::read(&request.body).map_err(|why| refused(&why, request)),
        Media::Other => Err(unsupported(request)),
    }
}

fn json(request: &Request) -> Result<Value, Status> {
    serde_json::from_slice(&request.body)
        .map_err(|error| Status::bad_request(format!("error decoding the body as JSON: {error}")))
}

fn yaml(request: &Request) -> Result<Value, Status> {
    let read = std::str::from_utf8(&request.body).map_err(|error| error.to_string());
    let read = read.and_then(|text| {
        serde_saphyr::from_str(text)
            .map_err(|error| error.to_string().lines().next().unwrap_or("").to_owned())
    });
    read.map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))
}

/// As kube-apiserver words it (apimachinery, `serializer/protobuf`).
fn refused(why: &Unreadable, request: &Request) -> Status {
    match why {
        Unreadable::NoEnvelope => Status::bad_request(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ),
        Unreadable::Broken => Status::bad_request("error decoding the body as protobuf: unexpected EOF"),
        Unreadable::UnknownKind(..) => unsupported(request),
    }
}

fn unsupported(request: &Request) -> Status {
    Status::unsupported(format!(
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml ({} is not)",
        request.content_type
    ))
}
