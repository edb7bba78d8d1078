//! Refused tokens, each with its reason, and valid tokens.

use moongate_access::auth::{SignatureAlgorithm, TokenIssuer};
use url::Url;

use super::signed_token::{
    ISSUER, IssuerSecrets, PUBLIC_URL, RESOURCE, claims_replacing, claims_with,
};
use crate::compact_token::CompactToken;
use crate::jwk_set::JwkSet;
use crate::person_mark::{SubjectKind, person_mark};
use crate::resource_names::ResourceNames;
use crate::token_fault::TokenFault;
use crate::verify::{TokenUse, VerifiedToken, check_claims, check_header, check_signature};

const HEADER: &str = r#"{"alg":"ES256","kid":"es256","typ":"at+jwt"}"#;

fn issuer() -> TokenIssuer {
    TokenIssuer {
        issuer: ISSUER.to_owned(),
        audience: None,
        algorithms: vec![
            SignatureAlgorithm::Es256,
            SignatureAlgorithm::Es384,
            SignatureAlgorithm::EdDsa,
            SignatureAlgorithm::Ps512,
        ],
        jwks_url: Url::parse("https://login.test/keys").unwrap(),
        scope: "mcp".to_owned(),
    }
}

/// Issuer with its keys, and one endpoint that tokens are sent to.
struct Fixture {
    secrets: IssuerSecrets,
    keys: JwkSet,
    issuer: TokenIssuer,
    endpoint: &'static str,
}

impl Fixture {
    fn new() -> Self {
        let secrets = IssuerSecrets::new();
        let keys = JwkSet::read(secrets.key_set().as_bytes()).unwrap();
        Fixture {
            secrets,
            keys,
            issuer: issuer(),
            endpoint: "",
        }
    }

    fn verify(&self, text: &str) -> Result<VerifiedToken, TokenFault> {
        let token = CompactToken::read(text)?;
        let header = check_header(&token.header, &self.issuer)?;
        check_signature(&token, &header, &self.keys)?;
        let resources = ResourceNames::new(&Url::parse(PUBLIC_URL).unwrap());
        let call = TokenUse {
            resources: &resources,
            endpoint: self.endpoint,
            now: jiff::Timestamp::now(),
        };
        check_claims(token.claims, &self.issuer, &call)
    }

    /// Returns the reason why a token with this header and these claims is refused.
    fn fault(&self, header: &str, claims: &str) -> Option<TokenFault> {
        self.verify(&self.secrets.sign(header, claims)).err()
    }
}

fn claims() -> String {
    claims_with("")
}

#[test]
fn good_tokens_of_each_algorithm_pass() {
    let fixture = Fixture::new();
    for header in [
        HEADER,
        r#"{"alg":"ES256","kid":"es256"}"#,
        r#"{"alg":"ES256","kid":"es256","typ":"jwt"}"#,
        r#"{"alg":"ES256","kid":"es256","typ":"application/at+jwt"}"#,
        r#"{"alg":"ES256"}"#,
        r#"{"alg":"ES384","kid":"es384"}"#,
        r#"{"alg":"EdDSA","kid":"eddsa"}"#,
        r#"{"alg":"PS512","kid":"rsa"}"#,
        // The sender of a token wrote these, so they are ignored.
        r#"{"alg":"ES256","kid":"es256","jku":"https://evil.test/keys","x5u":"https://evil.test/","jwk":{"kty":"oct","k":"AA"}}"#,
    ] {
        assert_eq!(fixture.fault(header, &claims()), None, "{header}");
    }
    let rs256 = Fixture {
        issuer: TokenIssuer {
            algorithms: vec![SignatureAlgorithm::Rs256],
            ..issuer()
        },
        ..fixture
    };
    assert_eq!(
        rs256.fault(r#"{"alg":"RS256","kid":"rsa"}"#, &claims()),
        None
    );
}

#[test]
fn headers_that_ask_for_something_else_are_refused() {
    let fixture = Fixture::new();
    for (header, fault) in [
        (r#"{"alg":"none"}"#, TokenFault::Algorithm),
        (r#"{"alg":"None"}"#, TokenFault::Algorithm),
        (r#"{"alg":"HS256","kid":"rsa"}"#, TokenFault::Algorithm),
        (r#"{"alg":"RS256","kid":"rsa"}"#, TokenFault::Algorithm),
        (r#"{"kid":"es256"}"#, TokenFault::Algorithm),
        (r#"{"alg":["ES256"],"kid":"es256"}"#, TokenFault::Algorithm),
        (r#"{"alg":"ES256","alg":"ES256"}"#, TokenFault::Malformed),
        (r#"{"alg":"ES256","kid":5}"#, TokenFault::Malformed),
        (
            r#"{"alg":"ES256","kid":"es256","crit":["exp"]}"#,
            TokenFault::Extension,
        ),
        (
            r#"{"alg":"ES256","kid":"es256","crit":[]}"#,
            TokenFault::Extension,
        ),
        (
            r#"{"alg":"ES256","kid":"es256","typ":"dpop+jwt"}"#,
            TokenFault::Type,
        ),
        (
            r#"{"alg":"ES256","kid":"es256","typ":"logout+jwt"}"#,
            TokenFault::Type,
        ),
        (
            r#"{"alg":"ES256","kid":"es256","typ":null}"#,
            TokenFault::Type,
        ),
        (r#"{"alg":"ES256","kid":"other"}"#, TokenFault::UnknownKey),
        // The key exists, but it has another type.
        (r#"{"alg":"ES256","kid":"rsa"}"#, TokenFault::UnknownKey),
        (r#"{"alg":"PS512","kid":"es256"}"#, TokenFault::UnknownKey),
        (r#"{"alg":"ES384","kid":"es256"}"#, TokenFault::UnknownKey),
    ] {
        assert_eq!(fixture.fault(header, &claims()), Some(fault), "{header}");
    }
}

#[test]
fn a_signature_is_over_the_text_and_by_the_issuer() {
    let fixture = Fixture::new();
    let good = fixture.secrets.sign(HEADER, &claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, _) = signed.split_once('.').unwrap();
    let other = fixture
        .secrets
        .sign(HEADER, &claims_with(r#","groups":["boss"]"#));
    let (other_signed, _) = other.rsplit_once('.').unwrap();
    let (_, other_claims) = other_signed.split_once('.').unwrap();
    let foreign = IssuerSecrets::new();
    for text in [
        format!("{header}.{other_claims}.{signature}"),
        format!("{signed}."),
        format!("{signed}.AAAA"),
        foreign.sign(HEADER, &claims()),
    ] {
        assert_eq!(
            fixture.verify(&text).unwrap_err(),
            TokenFault::Signature,
            "{text}"
        );
    }
    // Without a name, the key may be new, so the keys are fetched before the token is refused.
    let unnamed = foreign.sign(r#"{"alg":"ES256"}"#, &claims());
    assert_eq!(
        fixture.verify(&unnamed).unwrap_err(),
        TokenFault::UnknownKey
    );
}

#[test]
fn claims_that_do_not_match_are_refused() {
    let fixture = Fixture::new();
    let issuer = format!(r#""iss":"{ISSUER}""#);
    let audience = format!(r#""aud":"{RESOURCE}""#);
    let subject = r#""sub":"ann""#;
    for (part, other, fault) in [
        (
            issuer.as_str(),
            r#""iss":"https://evil.test""#,
            TokenFault::Issuer,
        ),
        (
            &issuer,
            r#""iss":"https://login.test/""#,
            TokenFault::Issuer,
        ),
        (
            &issuer,
            r#""iss":["https://login.test"]"#,
            TokenFault::Issuer,
        ),
        (&issuer, r#""issuer":"x""#, TokenFault::Issuer),
        (
            &audience,
            r#""aud":"https://mcp.test""#,
            TokenFault::Audience,
        ),
        (
            &audience,
            r#""aud":"https://mcp.test/mcp/files""#,
            TokenFault::Audience,
        ),
        (
            &audience,
            r#""aud":"http://mcp.test/mcp""#,
            TokenFault::Audience,
        ),
        (&audience, r#""aud":[]"#, TokenFault::Audience),
        (&audience, r#""client_id":"app""#, TokenFault::Audience),
        (subject, r#""sub":"""#, TokenFault::NoSubject),
        (subject, r#""sub":5"#, TokenFault::NoSubject),
        (subject, r#""subject":"ann""#, TokenFault::NoSubject),
        (subject, r#""sub":"ann","sub":"bob""#, TokenFault::Malformed),
        (subject, r#""sub":"ann","nonce":"n""#, TokenFault::IdToken),
        (subject, r#""sub":"ann","at_hash":"h""#, TokenFault::IdToken),
        (subject, r#""sub":"ann","c_hash":"h""#, TokenFault::IdToken),
        (
            subject,
            r#""sub":"ann","cnf":{"jkt":"t"}"#,
            TokenFault::Bound,
        ),
        (r#""exp":"#, r#""expires":"#, TokenFault::NoExpiry),
        (r#""exp":"#, r#""exp":1,"ex":"#, TokenFault::Expired),
        (
            r#""exp":"#,
            r#""exp":"9999999999","ex":"#,
            TokenFault::NoExpiry,
        ),
        (
            r#""exp":"#,
            r#""nbf":9999999999,"exp":"#,
            TokenFault::NotYet,
        ),
        (r#""exp":"#, r#""nbf":"1","exp":"#, TokenFault::NotYet),
    ] {
        let claims = claims_replacing(part, other);
        assert_eq!(fixture.fault(HEADER, &claims), Some(fault), "{claims}");
    }
}

#[test]
fn clocks_may_differ_by_half_a_minute() {
    let fixture = Fixture::new();
    let now = jiff::Timestamp::now().as_second();
    for (exp, nbf, fault) in [
        (now - 20, now - 600, None),
        (now - 40, now - 600, Some(TokenFault::Expired)),
        (now + 600, now + 20, None),
        (now + 600, now + 60, Some(TokenFault::NotYet)),
        (i64::MAX, 0, None),
    ] {
        let times = format!(r#""nbf":{nbf},"exp":{exp},"ex":"#);
        let claims = claims_replacing(r#""exp":"#, &times);
        assert_eq!(fixture.fault(HEADER, &claims), fault, "{claims}");
    }
}

#[test]
fn an_audience_of_the_config_opens_every_endpoint_and_a_resource_its_own() {
    let audience = format!(r#""aud":"{RESOURCE}""#);
    let fixture = Fixture::new();
    let fixture = Fixture {
        endpoint: "files",
        ..fixture
    };
    let own = claims_replacing(&audience, r#""aud":["x","https://MCP.test/mcp/files/"]"#);
    assert_eq!(fixture.fault(HEADER, &own), None);
    assert_eq!(fixture.fault(HEADER, &claims()), Some(TokenFault::Audience));
    let fixture = Fixture {
        issuer: TokenIssuer {
            audience: Some(vec!["api://moongate".to_owned()]),
            ..issuer()
        },
        ..fixture
    };
    let configured = claims_replacing(&audience, r#""aud":"api://moongate""#);
    assert_eq!(fixture.fault(HEADER, &configured), None);
    assert_eq!(fixture.fault(HEADER, &own), Some(TokenFault::Audience));
}

#[test]
fn a_scope_is_a_word_of_scope_or_scp() {
    let fixture = Fixture::new();
    for (scope, expected) in [
        (r#""scope":"mcp""#, true),
        (r#""scope":"openid mcp email""#, true),
        (r#""scope":["openid","mcp"]"#, true),
        (r#""scp":"mcp""#, true),
        (r#""scp":["mcp"]"#, true),
        (r#""scope":"mcp2 mcp:read MCP""#, false),
        (r#""scope":"""#, false),
        (r#""scopes":"mcp""#, false),
    ] {
        let claims = claims_replacing(r#""scope":"openid mcp""#, scope);
        let token = fixture.secrets.sign(HEADER, &claims);
        assert_eq!(
            fixture.verify(&token).unwrap().has_scope,
            expected,
            "{scope}"
        );
    }
}

#[test]
fn a_program_is_not_the_person_of_the_same_name() {
    let fixture = Fixture::new();
    let person = person_mark(SubjectKind::Person, ISSUER, "ann");
    let program = person_mark(SubjectKind::Program, ISSUER, "ann");
    for (more, mark) in [
        ("", person),
        (r#","client_id":"app","azp":"app""#, person),
        (r#","idtyp":"user""#, person),
        (r#","client_id":"ann""#, program),
        (r#","azp":"ann""#, program),
        (r#","idtyp":"app""#, program),
    ] {
        let token = fixture.secrets.sign(HEADER, &claims_with(more));
        assert_eq!(fixture.verify(&token).unwrap().mark, mark, "{more}");
    }
}

#[test]
fn a_name_for_logs_is_a_verified_address_or_the_subject() {
    let fixture = Fixture::new();
    for (more, name) in [
        (r#","email":"a@b.test","email_verified":true"#, "a@b.test"),
        (r#","email":"a@b.test""#, "ann at https://login.test"),
        (r#","name":"Ann""#, "ann at https://login.test"),
    ] {
        let token = fixture.secrets.sign(HEADER, &claims_with(more));
        assert_eq!(fixture.verify(&token).unwrap().name, name, "{more}");
    }
}

#[test]
fn a_token_of_entra_is_its_tenant_and_object_whatever_its_version() {
    let mut fixture = Fixture::new();
    let token = |issuer: &str, more: &str| claims_with(more).replace(ISSUER, issuer);
    let person = r#","tid":"t1","oid":"o1","email":"boss@example.com","email_verified":true"#;
    let mut marks = Vec::new();
    for issuer in [
        "https://login.microsoftonline.com/t1/v2.0",
        "https://sts.windows.net/t1/",
    ] {
        issuer.clone_into(&mut fixture.issuer.issuer);
        let text = fixture.secrets.sign(HEADER, &token(issuer, person));
        let verified = fixture.verify(&text).unwrap();
        assert_eq!(verified.name, format!("o1 at {issuer}"));
        marks.push(verified.mark);
        let elsewhere = token(issuer, r#","tid":"t2","oid":"o1""#);
        assert_eq!(fixture.fault(HEADER, &elsewhere), Some(TokenFault::Tenant));
    }
    assert_eq!(marks[0], marks[1]);
    assert_eq!(marks[0], person_mark(SubjectKind::Person, "t1", "o1"));
}
