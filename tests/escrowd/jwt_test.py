#!/usr/bin/env python3
"""JSON Web Tokens of an issuer that the configuration names: which count, for whom, and what forged ones try. The
tokens are the tests' own, signed by openssl."""
import base64
import hashlib
import hmac
import json
import re
import subprocess
import time

from clock import HOUR_S, Clock
from reload_test import change
from remote_test import Remote
from service import eventually, expect, expect_equal, main
from tokens_test import FollowerOverTcp

ISSUER, AUDIENCE = 'https://ci.example.org', 'escrow'


def in_base64url(content):
    return base64.urlsafe_b64encode(content).rstrip(b'=').decode()


def openssl(*arguments, content=None):
    return subprocess.run(['openssl', *arguments], check=True, capture_output=True, timeout=300, input=content).stdout


class Key:
    """A key of an issuer, by openssl: in a file, and as a JWK."""

    def __init__(self, directory, name, kind='RSA', bits=2048):
        self.name, self.kind, self.path = name, kind, f'{directory}/{name}.pem'
        self.algorithm = 'RS256' if kind == 'RSA' else 'ES256'
        option = f'rsa_keygen_bits:{bits}' if kind == 'RSA' else 'ec_paramgen_curve:prime256v1'
        openssl('genpkey', '-algorithm', kind, '-pkeyopt', option, '-out', self.path)

    def jwk(self, **members):
        if self.kind == 'RSA':
            said = openssl('rsa', '-in', self.path, '-noout', '-modulus').decode()
            numbers = {'n': in_base64url(bytes.fromhex(said.split('=')[1].strip())), 'e': 'AQAB'}
        else:
            public = openssl('ec', '-in', self.path, '-pubout', '-outform', 'DER')
            numbers = {'crv': 'P-256', 'x': in_base64url(public[-64:-32]), 'y': in_base64url(public[-32:])}
        return {'kty': self.kind, 'kid': self.name, 'use': 'sig', **numbers, **members}

    def sign(self, content):
        signature = openssl('dgst', '-sha256', '-sign', self.path, content=content)
        if self.kind == 'RSA':
            return signature
        said = openssl('asn1parse', '-inform', 'DER', content=signature).decode()
        return b''.join(bytes.fromhex(number.rjust(64, '0')) for number in re.findall(r'INTEGER\s+:(\w+)', said))


def token(key, claims, sign=None, **header):
    """Signed by the key, and by `sign` otherwise; null leaves out a member of the header."""
    header = {name: value for name, value in {'alg': key.algorithm, 'kid': key.name, **header}.items()
              if value is not None}
    content = '.'.join(in_base64url(json.dumps(part).encode()) for part in (header, claims))
    return f'{content}.{in_base64url((sign or key.sign)(content.encode()))}'


def claims(**others):
    now = int(time.time())
    return {'iss': ISSUER, 'aud': AUDIENCE, 'sub': 'build-7', 'project': 'team/models', 'iat': now, 'nbf': now,
            'exp': now + 3600, **others}


class Issuing:
    """A service that takes the tokens of one issuer with an RSA and an EC key, and of nobody else."""

    def __init__(self, start):
        self.remote = Remote(start, tls=False)
        service = self.service = self.remote.service
        self.rsa, self.ec = Key(service.directory, 'rsa'), Key(service.directory, 'ec', 'EC')
        self.keys_file = f'{service.directory}/jwks.json'
        self.write_keys(self.rsa.jwk(), self.ec.jwk(), {'kty': 'oct', 'k': 'AAAA', 'kid': 'secret'})
        change(service, jwt_issuers=[{'issuer': ISSUER, 'audience': AUDIENCE, 'keys_file': self.keys_file,
                                      'principals': [
                                          {'claims': {'project': 'team/models', 'sub': 'build-*'},
                                           'principal': 'agent:ci-{sub}'},
                                          {'claims': {'project': 'team/*'}, 'principal': 'user:{name}'}]}])

    def write_keys(self, *jwks):
        with open(self.keys_file, 'w', encoding='utf-8') as file:
            json.dump({'keys': jwks}, file)

    def __enter__(self):
        self.remote.__enter__()
        return self

    def __exit__(self, *why):
        self.remote.__exit__(*why)

    def principal(self, given):
        """Whose the token is; None: it is refused."""
        answer = self.remote.ask('POST', '/v1/sessions', {'repository': 'data'}, token=given)
        if answer.status == 401:
            return None
        return answer.expect(201)['issuer']


def ATokenOfAnIssuerIsWhomItsClaimsSay(start):
    issuing = Issuing(start)
    clock = Clock(issuing.service)
    with issuing:
        for key in (issuing.rsa, issuing.ec):
            expect_equal(key.kind, issuing.principal(token(key, claims())), 'agent:ci-build-7')
            expect_equal('of several audiences', issuing.principal(token(key, claims(aud=['x', AUDIENCE]))),
                         'agent:ci-build-7')
            expect_equal('without the name of the key', issuing.principal(token(key, claims(), kid=None)),
                         'agent:ci-build-7')
        other = claims(project='team/other', name='somebody')
        expect_equal('by the next rule', issuing.principal(token(issuing.ec, other)), 'user:somebody')
        expect_equal('a number', issuing.principal(token(issuing.ec, {**other, 'name': 12})), 'user:12')
        # A token makes no token, and what it follows ends with it.
        short = token(issuing.ec, claims(exp=int(time.time()) + HOUR_S))
        issuing.remote.ask('POST', '/v1/tokens', {}, token=short).expect(403, 'forbidden')
        with FollowerOverTcp(issuing.remote, short) as follower:
            expect_equal('in its time', issuing.principal(short), 'agent:ci-build-7')
            clock.advance(HOUR_S)
            eventually('it is sent away', lambda: follower.closed)
        expect_equal('afterwards', issuing.principal(short), None)


def WhatIsNotSignedForThisServiceNowIsNobodys(start):
    with Issuing(start) as issuing:
        rsa, ec = issuing.rsa, issuing.ec
        now = int(time.time())
        def without(name):
            return {one: value for one, value in claims().items() if one != name}
        for what, wrong in (
                ('another issuer', claims(iss='https://ci.example.com')), ('no issuer', without('iss')),
                ('another audience', claims(aud='other')), ('several others', claims(aud=['a', 'b'])),
                ('no audience', without('aud')), ('expired', claims(exp=now - 1)), ('no end', without('exp')),
                ('an end that is none', claims(exp='never')), ('not yet', claims(nbf=now + 3600)),
                ('a beginning that is none', claims(nbf='now')), ('no rule', claims(project='other/models')),
                ('without a claim of the rule', without('project')), ('root', claims(project='team/x', name='root')),
                ('a claim of the principal is missing', claims(project='team/x')),
                ('a principal that is none', claims(project='team/x', name='a\nb')), ('a list', [])):
            expect_equal(what, issuing.principal(token(rsa, wrong)), None)
        good = claims()
        public = openssl('rsa', '-in', rsa.path, '-pubout')
        def by_mac(content):
            return hmac.new(public, content, hashlib.sha256).digest()
        stranger = Key(issuing.service.directory, 'stranger')
        for what, forged in (
                ('alg none', token(rsa, good, lambda _: b'', alg='none')),
                ('alg None', token(rsa, good, lambda _: b'', alg='None')),
                ('no alg', token(rsa, good, alg=None)),
                ('the public key as a secret', token(rsa, good, by_mac, alg='HS256')),
                ('the key of HMAC', token(rsa, good, by_mac, alg='HS256', kid='secret')),
                ('the same called RS256', token(rsa, good, by_mac)),
                ('the other algorithm', token(rsa, good, alg='ES256')), ('and its key', token(rsa, good, kid='ec')),
                ('RS512', token(rsa, good, alg='RS512')), ('a stranger', token(stranger, good)),
                ('who says to be the issuer', token(stranger, good, kid='rsa')),
                ('with a key of its own', token(stranger, good, kid='rsa', jwk=stranger.jwk())),
                ('and nothing else', token(stranger, good, kid=None)),
                ('crit', token(rsa, good, crit=['exp'])),
                ('no signature', token(rsa, good, lambda _: b'')),
                ('zeroes', token(ec, good, lambda _: bytes(64))),
                ('DER', token(ec, good, lambda content: openssl('dgst', '-sha256', '-sign', ec.path,
                                                               content=content)))):
            expect_equal(what, issuing.principal(forged), None)
        right = token(rsa, good)
        head, body, signature = right.split('.')
        other_body = in_base64url(json.dumps({**good, 'sub': 'build-8'}).encode())
        for changed in (f'{head}.{other_body}.{signature}', f'{head}.{body}.{signature}.', f'{head}.{body}',
                        f'.{body}.{signature}', f'{head}..{signature}', f'{head}.{body}.',
                        f'{head}.{body}.!{signature}',
                        f'{right}.{signature}', '..', '.', 'a.b.c', f'{in_base64url(b"[]")}.{body}.{signature}',
                        f'{in_base64url(b"{")}.{body}.{signature}'):
            expect_equal(changed[:40], issuing.principal(changed), None)
        expect_equal('the right one', issuing.principal(right), 'agent:ci-build-7')


def KeysAreReplacedByAReload(start):
    with Issuing(start) as issuing:
        service = issuing.service
        old = token(issuing.rsa, claims())
        expect_equal('before', issuing.principal(old), 'agent:ci-build-7')
        new = Key(service.directory, 'new')
        issuing.write_keys(new.jwk())
        expect_equal('the file alone changes nothing', issuing.principal(old), 'agent:ci-build-7')
        service.post('/v1/reload').expect(200)
        expect_equal('the old key', issuing.principal(old), None)
        expect_equal('the new one', issuing.principal(token(new, claims())), 'agent:ci-build-7')
        issuing.write_keys(new.jwk(use='enc'))
        service.post('/v1/reload').expect(400, 'bad_request')
        expect_equal('what is wrong changes nothing', issuing.principal(token(new, claims())), 'agent:ci-build-7')


def AnIssuerThatCannotBeTrustedIsRefusedByName(start):
    with Issuing(start) as issuing:
        service = issuing.service
        good = service.config['jwt_issuers'][0]
        weak, ec = Key(service.directory, 'weak', bits=1024), issuing.ec.jwk()
        def check(said, keys=None, **members):
            if keys is not None:
                with open(issuing.keys_file, 'w', encoding='utf-8') as file:
                    file.write(keys if isinstance(keys, str) else json.dumps({'keys': keys}))
            change(service, jwt_issuers=[{name: value for name, value in {**good, **members}.items()
                                          if value is not None}])
            ran = subprocess.run([service.escrowd_binary, '--config', service.config_path, '--check-config'],
                                 capture_output=True, text=True, check=False, timeout=300)
            expect_equal(f'{members} {keys}: {ran.stderr}', ran.returncode, 2)
            expect(said in ran.stderr, f'{members} {keys}: {ran.stderr!r} does not say {said!r}')
        check('"issuer"', issuer=None)
        check('"audience"', audience=None)
        check('keys_file', keys_file='jwks.json')
        check('/nothing', keys_file='/nothing')
        check('"principals"', principals=[])
        check('"claims"', principals=[{'principal': 'agent:x'}])
        check('user:NAME', principals=[{'principal': '{sub}', 'claims': {'sub': 'x'}}])
        check('colour', colour='red')
        check('JWK set', keys='{')
        check('JWK set', keys='[]')
        check('no key for RS256 or ES256', keys=[{'kty': 'oct', 'k': 'AAAA'}])
        check('weak', keys=[weak.jwk()])
        check('ec', keys=[{**ec, 'y': ec['x']}])
        check('damaged', keys=[{**ec, 'x': '!'}])


if __name__ == '__main__':
    main(globals())
