#!/usr/bin/env python3
"""Compares `quill template` with Jinja2 set up as transformers sets it, byte for byte, errors as errors.

  jinja_reference.py QUILL [DIR]    the snippets below; with DIR, its *.jinja too, as they are and mutated
"""
import datetime, glob, json, os, random, re, subprocess, sys, tempfile

try:
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("skipped: python3-jinja2 is not there")
    sys.exit(77)

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
X = {
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "  Hi <there> & 'you' \"all\"\n"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello\tcafé 中文 🎉", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2.5, None, True], "c": "x"}}}]},
        {"role": "tool", "content": "3", "name": "add", "tool_call_id": "c1"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "add", "description": "Adds\nnumbers.", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": ["array", "null"], "items": {"type": "number"}, "enum": [1, 2]}},
        "required": ["a"]}}}],
    "n": 7, "f": 2.5, "neg": -3, "t": True, "z": None, "s": "Hello World", "e": "", "l": [3, 1, 2], "w": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": {"x": [1, 2]}, "C": "c"}, "u": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "x", "v": 3}, {"v": 0}], "el": [], "ed": {},
    "items": "shadow", "us": "straße ÉCOLE ǆ", "sp": " \t\n x \u00a0\u3000", "m": "a,b,,c", "h": "<a href='x'>&</a>",
}
SNIPPETS = r"""
{{ s }}|{{ e }}|{{ z }}|{{ t }}|{{ n }}|{{ f }}|{{ neg }}|{{ l }}|{{ d }}|{{ u }}|{{ missing }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 5 % 0 }}
{{ 1e3 }} {{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 123456789012345680.0 }} {{ 1.5e300 * 1e10 }} {{ 3.0 | int }} {{ 100 }} {{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }}
{{ 10 / 4 }} {{ 10 / 5 }} {{ 1 + true }} {{ true + true }} {{ 3 * 'ab' }} {{ 'ab' * 2 }} {{ [1, 2] * 2 }} {{ [1] + [2] }} {{ (1, 2) + (3,) }} {{ (1,) }} {{ () }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ [1] + 'a' }}
{{ 'a' ~ 1 ~ none ~ 2.0 ~ [1] ~ missing }}
{{ missing + 'a' }}
{{ missing.x }}
{{ z.x }} {{ z.x is defined }}
{{ z.x.y }}
{{ d.nope }}|{{ d['nope'] }}|{{ d.a.x[0] }}|{{ d['a']['x'][-1] }}|{{ l[5] }}|{{ l[-4] }}|{{ s[0] }}{{ s[-1] }}|{{ l.0 }}
{{ d.nope.x }}
{{ s[1:3] }} {{ s[::-1] }} {{ s[-3:] }} {{ s[:-3] }} {{ s[::2] }} {{ s[8:2:-2] }} {{ s[100:] }} {{ s[:100] }} {{ l[1:] }} {{ l[::-1] }} {{ l[-2:] }} {{ (1,2,3)[1:] }} {{ us[2:5] }} {{ s[5:1] }}
{{ messages[1:]|length }} {{ messages[-1]['role'] }} {{ messages[0]['content'][:2] }} {{ l[1:none] }} {{ l[none:2] }}
{{ l['a':] }}
{{ l[::0] }}
{{ z[1:] }}
{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d.items()|list }} {{ d|items|list }} {{ d|length }} {{ d|list }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }}
{{ 'a' in s }} {{ 'World' in s }} {{ 1 in l }} {{ 9 not in l }} {{ 'b' in d }} {{ 'a' in missing }} {{ none in [none] }} {{ '' in 'a' }}
{{ 1 in 5 }}
{{ 1 in 'a' }}
{{ missing in 'a' }}
{{ d|tojson(indent='\t') }}|{{ [1, [2, {}]]|tojson(indent='--') }}|{{ [1]|tojson(indent='') }}|{{ []|tojson(indent='\t') }}
{{ '{:.2f} {:5d}|{:<5}|{:>5}|{:^5}|{:*^7}|{:,}|{:05d}|{:+d}|{:x}|{:#X}|{:08.3f}|{:e}|{:.1%}|{:g}'.format(2.5, 7, 'a', 'b', 'c', 'd', 1234567, 42, 5, 255, 255, 3.14159, 12345.678, 0.257, 1e-7) }}
{{ '{:.3}|{:10}|{:>10}|{x:_>4}|{0:>3}'.format('abcdef', 2.5, True, x='é') if false else '{:.3}|{:10}|{:>4}'.format('abcdef', 2.5, 'é') }}
{{ '{x:>4}|{y!r:>6}|{y!s:<4}|{x!s}'.format(x='é', y='b') }}|{{ '{0:.0f}{0:.1f}'.format(2.5) }}|{{ '{:,.2f}|{:,}|{:_}'.format(1234567.891, -1234, 12345) }}|{{ '{:d}|{:5}|{:.1f}'.format(true, 3, true) }}
{{ '{:b} {:o} {:#b} {:X} {:=+6d} {:<6}| {:^6}| {:-d} {: d}'.format(5, 8, 5, 255, 7, 8, 9, 1, 2) }} {{ '{:%}'.format(1) }} {{ '{:f}'.format(-1.5) }} {{ '{:10.3e}|'.format(123.456) }}
{{ '{:.2f}'.format('a') }}
{{ '{:d}'.format(1.5) }}
{{ '{:.2d}'.format(1) }}
{{ '{:s}'.format(1) }}
{{ '{:5}'.format(none) }}
{{ '{:5}'.format([1]) }}
{{ '{:,}'.format('a') }}
{{ '{:q}'.format(1) }}
{{ '{:5x'.format(1) }}
{{ [1, 2, 3, 4, 5, 6, 7]|slice(3)|list }} {{ [1, 2, 3, 4]|slice(3, 'x')|list }} {{ 'abcde'|slice(2)|list }} {{ []|slice(2)|list }} {{ [1]|slice(3)|list }} {{ [1]|slice(-1)|list }}
{{ 'a b/c?d=é&e'|urlencode }} {{ {'a b': 1, 'c': 'd/e'}|urlencode }} {{ [('x', 'y z'), ('q', none)]|urlencode }} {{ 12|urlencode }} {{ '~-_.+'|urlencode }} {{ none|urlencode }}
{{ 'a\vb\fc\x1cd\x1de\x1ef\x85g\u2028h\u2029i\rj\r\nk\n'.splitlines() }} {{ 'a\u2028b\x85'.splitlines(true) }} {{ 'a\u2028b\v\n'|indent(2) }}|{{ 'a\u2028'|indent(2, blank=true) }}|
{{ range(5)[:2] }} {{ range(0, 10, 3)[:] }} {{ range(10)[::-1] }} {{ range(1, 9)[2:5:2] }} {{ range(5)[3:1] }} {{ range(10)[2:][0] }} {{ range(9)[1:]|list }} {{ range(9)[-2:]|sum }} {{ range(10, 0, -2)[1:3] }}
{{ 'ﬁ ﬂ ﬀ ﬃ ﬄ ﬅ ﬆ'.upper() }} {{ 'ﬁn'.title() }} {{ 'ﬁn'|capitalize }} {{ 'ﬁ'.lower() }}
{{ 'a-b c_d  e.f 12 é'|wordcount }} {{ ''|wordcount }} {{ '--'|wordcount }} {{ 'x'|wordcount }}
{% set c = cycler('a', 'b') %}{{ c.current }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}
{{ 1234|round(-2) }} {{ 1250|round(-2) }} {{ 1350|round(-2) }} {{ -1250|round(-2) }} {{ -1251|round(-2) }} {{ 5|round(-1) }} {{ 15|round(-1) }} {{ 7|round(-3) }} {{ 9007199254740993|round(-1) }} {{ true|round(-1) }} {{ 1234.5|round(-2) }} {{ 1234|round(-2, 'floor') }} {{ 1|round(-30) }}
{{ 'a' in z }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ none == none }} {{ 'a' == 1 }} {{ missing == missing2 }} {{ [1] == (1,) }} {{ d == d }}
{{ 'a' < 1 }}
{{ none < 1 }}
{{ missing < 1 }}
{{ not t }} {{ not z }} {{ t and e }} {{ e or 'x' }} {{ z or e or l }} {{ t and n and f }} {{ not not t }} {{ not 1 == 2 }} {{ (not 1) == 2 }}
{{ 'yes' if t else 'no' }} {{ 'yes' if z }} {{ 'a' if z else 'b' if e else 'c' }} {{ ('x' if e) is defined }}
{{ -n }} {{ +n }} {{ - -n }} {{ -f|abs }} {{ n|abs }} {{ -5|string ~ 'x' }}
{{ -s }}
{{ 'a' 'b' "c" }} {{ 'a\n\t\x41\u00e9\\\'\"' }} {{ "\q\101" }} {{ 'x\
y' }}
{{ 'it\'s' }} {{ ["it's", 'say "x"', 'both\' "', 'tab\t nl\n \\ \x01 é \x7f'] }}
{{ s|lower }} {{ s|upper }} {{ s|title }} {{ 'hello wORLD-foo (bar)'|title }} {{ 'hello wORLD-foo'|capitalize }} {{ us|upper }} {{ us|lower }} {{ 'a-b'.title() }} {{ s.swapcase() }}
{{ sp|trim }}| {{ sp.strip() }}| {{ 'xxaxx'|trim('x') }} {{ 'xxaxx'.lstrip('x') }} {{ 'xyaxy'.rstrip('yx') }} {{ z|trim }} {{ missing|trim }} {{ n|trim }} {{ '  a '.lstrip() }}|
{{ s|length }} {{ us|length }} {{ l|count }} {{ missing|length }} {{ d|length }} {{ e|length }}
{{ n|length }}
{{ z|length }}
{{ l|map('string')|length }}
{{ l|join(', ') }} {{ l|join }} {{ u|join(',', attribute='v') }} {{ [1, none, 'a', 2.0]|join('-') }} {{ s|join('.') }} {{ d|join('+') }} {{ missing|join }}
{{ z|join }}
{{ z|select|list }} {{ z|reject('odd')|list }} {{ missing|selectattr('x')|list }} {{ false|rejectattr('x')|list }} {{ e|map('upper')|list }} {{ z|map(attribute='x')|list }} {{ 0|select|list }} {{ missing|map|list }}
{{ 5|select|list }}
{{ t|map('upper')|list }}
{{ range(0, 10, 9223372036854775807)|list }} {{ range(0, -10, -9223372036854775807)|list }} {{ range(9223372036854775805, 9223372036854775807)|list }} {{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807)|list }}
{{ range(-9223372036854775807, 9223372036854775807) }}
{{ '\u0130stanbul'.lower() }} {{ '\u0130'|lower }} {{ '\u0130'.casefold() }} {{ 'x\u0130'|capitalize }} {{ '\u0130'|title }} {{ '\u0130'.swapcase() }}
{{ 'a-b-c'.partition('-') }} {{ 'ab'.center(7, '*') }} {{ 'ab'|center(7) }} {{ 'x'.join(dict(**d)) }}
{{ dict(**{7: 1}) }}
{{ missing|default('x') }} {{ z|default('x') }} {{ e|default('x', true) }} {{ e|d('x', boolean=true) }} {{ d.q|default(1) }} {{ missing|default }}
{{ missing.x|default('y') }}
{{ d|tojson }} {{ u|tojson }} {{ s|tojson }} {{ z|tojson }} {{ t|tojson }} {{ f|tojson }} {{ h|tojson }} {{ us|tojson(ensure_ascii=true) }} {{ '🎉\x7f'|tojson(true) }} {{ 'a\n\t\x01"\\/'|tojson }}
{{ d|tojson(indent=2) }} {{ d|tojson(indent=0) }} {{ el|tojson(indent=2) }} {{ ed|tojson(indent=2) }} {{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ [[], {}, [1]]|tojson(indent=4) }} {{ (1, 2)|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}
{{ tools|tojson(indent=4) }}
{{ tools[0]|tojson }} {{ messages[2].tool_calls[0].function.arguments|tojson }}
{{ missing|tojson }}
{{ range(3)|tojson }}
{{ d.items()|tojson }}
{{ 1e400|tojson }} {{ -1e400 }} {{ (1e400 - 1e400)|tojson }}
{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}
{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}{{ {'b': 2, 'A': 1, 'c': 0}|dictsort(true) }} {{ {'b': 2, 'A': 1, 'c': 0}|dictsort(by='value') }} {{ {'b': 2, 'A': 1}|dictsort(reverse=true) }}
{{ w|sort }} {{ w|sort(case_sensitive=true) }} {{ w|sort(reverse=true) }} {{ u[:3]|sort(attribute='v') }} {{ l|sort }} {{ u[:3]|sort(attribute='k,v') }}
{{ [1, 'a']|sort }}
{{ w|unique|list }} {{ [1, 2, 1, 'a', 'A']|unique|list }} {{ w|unique(case_sensitive=true)|list }} {{ u[:3]|map(attribute='k')|unique|join }}
{{ l|min }} {{ l|max }} {{ w|min }} {{ w|max }} {{ el|min }} {{ l|sum }} {{ u|sum(attribute='v') }} {{ l|sum(start=10) }} {{ u|max(attribute='v') }}
{{ l|first }} {{ l|last }} {{ el|first }} {{ el|last }} {{ s|first }} {{ s|last }} {{ d|first }} {{ missing|first }}
{{ l|map('string')|last }}
{{ l|reverse|list }} {{ s|reverse }} {{ el|reverse|list }} {% for x in l|reverse %}{{ x }}{% endfor %}
{{ l|map('string')|list }} {{ w|map('upper')|join(',') }} {{ u|map(attribute='k')|list }} {{ u|map(attribute='k', default='?')|list }} {{ w|map('replace', 'a', 'z')|list }} {{ u|map(attribute='v')|sum }}
{{ l|map('nope')|list }}
{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ [0, 1, '', none, 'a']|select|list }} {{ l|select('gt', 1)|list }} {{ l|reject('in', [1, 2])|list }} {{ l|select('equalto', 2)|list }}
{{ u|selectattr('k')|list }} {{ u|selectattr('k', 'defined')|list }} {{ u|rejectattr('k', 'equalto', 'x')|list }} {{ u|selectattr('v', '>', 1)|map(attribute='v')|list }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ messages|rejectattr('role', 'in', ['user', 'tool'])|map(attribute='role')|join(' ') }}
{% set g = l|map('string') %}{{ g|list }}{{ g|list }}{% if el|select %}true{% endif %}
{{ u|groupby('k')|length }} {% for k, g in u[:3]|groupby('k') %}{{ k }}:{{ g|length }} {% endfor %}{% for g in u[:3]|groupby('k') %}{{ g.grouper }}:{{ g.list|length }}={{ g[1]|length }} {{ g }}{% endfor %}
{{ u|groupby('k', default='X') }} {{ u|groupby('k', default='X', case_sensitive=true) }} {{ u|groupby('k', 'a')|length }} {{ [{}, {'a': {'b': 2}}, {'a': {}}]|groupby('a.b', default=7) }} {{ u[:3]|groupby('k', default=none) }} {{ [2, 1]|groupby(none) }}
{{ u|groupby('k') }}
{{ u|groupby('k', default=none) }}
{{ [{}, {'a': {'b': 2}}]|map(attribute='a.b', default='x')|list }} {{ [{}]|map(attribute='a', default=none)|first is defined }} {{ [1, 0]|map(attribute=none)|list }} {{ [1, 0]|selectattr(none)|list }} {{ [2, 1]|sum(attribute=none) }} {{ [2, 1]|join('-', attribute=none) }}
{{ [['B'], ['a']]|sort(attribute=0) }} {{ [['B'], ['a']]|sort(attribute=0, case_sensitive=true) }} {{ [['B'], ['a']]|max(attribute=0) }} {{ [['B'], ['a']]|min(attribute=0) }} {{ [['B'], ['a']]|min(true, 0) }} {{ [['a'], ['A']]|unique(attribute=0)|list }} {{ [['a'], ['A'], ['b']]|groupby(0) }} {{ [['a'], ['A']]|groupby(0, case_sensitive=true) }}
{{ [{'a,b': 2}, {'a,b': 1}]|min(attribute='a,b') }} {{ [{'a,b': 1}]|groupby('a,b') }} {{ [none, none]|sort }} {{ [{'a': 1}, {'a': 1}]|sort }} {{ w|sort(attribute=none) }}
{{ [{'a': 1, 'b': 2}, {'a': 1, 'b': 1}]|max(attribute='a,b') }}
{{ {'b': 'C', 'A': 'd'}|dictsort(by='key') }} {{ {'b': 'C', 'A': 'd'}|dictsort(false, 'value') }} {{ {'b': 'C', 'A': 'd'}|dictsort(true, 'value') }}
{{ {'b': 1}|dictsort(by='zz') }}
{{ {'b': 1}|dictsort(by=none) }}
{{ {'a': 1}|attr('a') is defined }} {{ {'a': 1}|attr('a') }} {{ {'a': 1}|attr('items') is callable }} {{ namespace(a=1)|attr('a') }} {{ namespace(a=1)|attr('b') is defined }} {{ u[:3]|groupby('k')|first|attr('grouper') }} {{ s|attr('nope') is defined }} {{ l|attr('0') is defined }} {{ z|attr('x') is defined }} {% for x in l %}{{ loop|attr('index') }}{{ loop|attr('q') is defined }}{% endfor %}
{{ {1: 2}|attr(1) }}
{{ missing|attr('x') }}
{{ (d|attr('a')).x }}
{{ [1,2,3,4,5]|batch(2)|list }} {{ [1,2,3]|batch(2, 0)|list }}
{{ '42'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ '4.7'|int }} {{ f|int }} {{ 'ff'|int(0, 16) }} {{ z|int }} {{ ' 12 '|int }} {{ '1e3'|int }} {{ true|int }} {{ '3.5'|float }} {{ 'x'|float }} {{ n|float }} {{ z|float(1.5) }} {{ '1_0'|int }}
{{ '1__0'|int }} {{ '_1'|int }} {{ '1_'|int }} {{ '12\0x'|int }} {{ '12\0'|int }} {{ '--1'|int }} {{ '1 2'|int }} {{ '_'|int }} {{ '1_0.5'|float }} {{ '1_.5'|float }} {{ '1e_3'|float }} {{ '1\0'|float }} {{ '0x1p3'|float }} {{ '-inf'|float }} {{ 'nan'|int(4) }}
{{ '0b11'|int(0, 2) }} {{ '0o17'|int(0, 8) }} {{ '0x1F'|int(0, 16) }} {{ '-0x_f'|int(0, 16) }} {{ '0b11'|int(0, 16) }} {{ '0x0x1'|int(9, 16) }} {{ '0x'|int(9, 16) }} {{ '0b11'|int(0, 0) }} {{ '010'|int(0, 0) }} {{ '00'|int(9, 0) }} {{ 'zz'|int(0, 36) }} {{ '7.5'|int(0, 99) }} {{ 8|int(0, 99) }}
{{ 0x_f }} {{ 0X1F }} {{ 0b1_1 }} {{ 00 }} {{ 1_0.5 }} {{ 0_0 }} {{ '-9223372036854775808'|int }}
{{ 0x1__f }}
{{ 0b2 }}
{{ 007 }}
{{ missing|int }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.5|round(0, 'ceil') }} {{ 2.5|round(method='floor') }} {{ 1234.5|round(-2) }} {{ n|round }} {{ 0.125|round(2) }} {{ 1.005|round(2) }}
{{ s|replace('o', '0') }} {{ s|replace('o', '0', 1) }} {{ s.replace('l', '') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'aaaa'.replace('aa', 'b') }} {{ n|replace('7', '8') }}
{{ h|escape }} {{ h|e|e }} {{ h|safe }} {{ h|e + '<' }} {{ '<' + (h|e) }} {{ (h|e) ~ '<' }} {{ h|forceescape }}
{{ 'a\nb\n\nc'|indent }} {{ 'a\nb'|indent(2, true) }} {{ 'a\n\nb'|indent(2, blank=true) }} {{ 'a\nb'|indent('> ') }} {{ 'a\n'|indent(2) }}|
{{ '%s-%d-%05.2f-%x-%r'|format('a', 42, 3.14159, 255, 'q') }} {{ '%s' % 'a' }} {{ '%s %s' % ('a', 1) }} {{ '%(a)s' % {'a': 5} }} {{ '%5s|%-5s|%%' % ('a', 'b') }} {{ '%i' % 3.9 }} {{ '%.2s' % 'abc' }}
{{ '%x' % -1 }} {{ '%o' % -9 }} {{ '%+x' % 5 }} {{ '%X' % -255 }} {{ '%#x|%#X|%#o|%#x' % (255, -255, 8, 0) }} {{ '%5x|%-5x|%05x|% 05o|%#08x' % (-1, -1, -1, 8, 255) }} {{ '%.4x|%8.4x|%-8.4x|' % (-1, -1, -1) }} {{ '%05.3d|%.0d|%+.3i|% u' % (7, 0, 5, 6) }}
{{ '%d' % 9223372036854775807 }} {{ '%d' % (0 - 9223372036854775807 - 1) }} {{ '%x' % (0 - 9223372036854775807 - 1) }} {{ '%d' % -3.9 }} {{ '%x' % true }} {{ '%+08.2f|%#.0f|% e' % (1.5, 2.0, 3.0) }}
{{ '%x' % 1.5 }}
{{ '%d' % 1e400 }}
{{ '%d' % (1e400 - 1e400) }}
{{ '%\0' % 5 }}
{{ '%s %s' % 'a' }}
{{ '%d' % 'a' }}
{{ '%s' % (1, 2) }}
{{ 'a b c'|wordcount }} {{ 'abc'|center(10) }}| {{ 'abc'.center(8, '*') }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '.') }} {{ '42'.zfill(5) }} {{ '-42'.zfill(5) }}
{{ m.split(',') }} {{ m.split(',', 1) }} {{ m.rsplit(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b c'.split(none, 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'abc'.split('x') }} {{ ''.split() }} {{ ''.split(',') }} {{ m.split(sep=',', maxsplit=2) }} {{ 'a<b>c'.split('<b>')[-1] }}
{{ m.split('') }}
{{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ m.partition(',') }} {{ m.rpartition(',') }} {{ m.partition('x') }} {{ m.rpartition('x') }}
{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} {{ s.startswith('W', 6) }} {{ s.endswith('lo', 0, 5) }} {{ s.startswith('') }} {{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.index('W') }} {{ s.count('l') }} {{ us.find('É') }} {{ s.find('o', 5) }} {{ s.count('') }}
{{ s.index('zz') }}
{{ s.startswith(1) }}
{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isspace() }} {{ 'ab'.islower() }} {{ 'AB1'.isupper() }} {{ '1'.isupper() }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'x'.join(['a', 'b']) }}
{{ 'x'.join([1]) }}
{{ '{} {}'.format(1, 'a') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=5) }} {{ '{{}}'.format() }} {{ '{!r}'.format('a') }}
{{ 'a'.nope }}|{{ 'a'.nope is defined }}
{{ 'a'.nope() }}
{{ l.append(4) }}
{{ d.update({}) }}
{{ d.pop('b') }}
{{ l.append is defined }} {{ d.items is defined }} {{ d['items'] is defined }} {{ {'items': 5}.items is callable }} {{ {'items': 5}['items'] }}
{{ l.count(1) }} {{ l.index(2) }} {{ l.copy() }} {{ d.copy() }}
{{ ''.__class__ }}|
{{ ''.__class__.__mro__ }}
{{ l.__len__() }}
{{ x is defined }} {{ n is defined }} {{ x is undefined }} {{ x is not defined }} {{ d.q is defined }} {{ z is none }} {{ z is not none }} {{ n is number }} {{ t is number }} {{ t is integer }} {{ n is integer }} {{ f is float }} {{ s is string }} {{ d is mapping }} {{ l is iterable }} {{ s is iterable }} {{ n is iterable }} {{ s is sequence }} {{ d is sequence }} {{ l is sequence }} {{ l|map('string') is sequence }} {{ l|map('string') is iterable }} {{ x is sequence }} {{ x is iterable }} {{ t is boolean }} {{ t is true }} {{ 1 is true }} {{ t is false }} {{ range is callable }} {{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ 1 is in l }} {{ 1 is in [2] }} {{ n is eq 7 }} {{ n is equalto(7) }} {{ n is gt 3 and n is lt 9 }} {{ z is sameas none }} {{ 'a' is lower }} {{ 'A' is upper }} {{ n is not string and s is string }} {{ h|e is escaped }} {{ 'upper' is filter }} {{ range(3) is sequence }} {{ d.items() is sequence }}
{{ n is nope }}
{{ n|nope }}
{% if false %}{{ n|nope }}{% endif %}ok
{{ not n is defined }} {{ n is defined and s is string or q }} {{ n == 7 is true }} {{ s is string == true }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }};{% endfor %}
{% for x in el %}x{% else %}empty{% endfor %}{% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}{% for x in l if x > 9 %}{% else %}none{% endfor %}{% for x in missing %}{% else %}undef{% endfor %}
{% for x in z %}{% endfor %}
{% for x in n %}{% endfor %}
{% for x in l %}{% for y in w %}{{ loop.depth }}{{ x }}{{ y }}{% endfor %}{{ loop.index }}{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, b in [(1,)] %}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}
{% for x in range(10) %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% else %}no{% endfor %}
{% for c in 'aé中' %}{{ c }}.{% endfor %}{% for x in range(5, 0, -2) %}{{ x }}{% endfor %}{{ range(3) }} {{ range(1, 9, 2)|list }} {{ range(0)|list }} {{ range(3)[1] }} {{ range(5)|length }} {{ 2 in range(3) }}
{{ range(1000000) }}
{{ range(0, 5, 0) }}
{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{{ ns['a'] }} {{ ns }}
{% set ns = namespace({'q': 1}, r=2) %}{{ ns.q }}{{ ns.r }}{% set ns.new = 3 %}{{ ns.new }}
{% set d2 = {} %}{% set d2.x = 1 %}
{% set nope.x = 1 %}
{% if t %}{% set y = 5 %}{% endif %}{{ y }}{% if z %}{% set q = 1 %}{% elif n == 7 %}{% set q = 2 %}{% else %}{% set q = 3 %}{% endif %}{{ q }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set a, b = b, a %}{{ a }}{{ b }}
{% set x %}hello {{ n }}{% endset %}[{{ x }}]{% set y | upper | replace('L', 'z') %}hello{% endset %}{{ y }}{{ x is string }}
{% filter upper %}abc {{ n }}{% endfilter %}{% filter replace('a', 'b')|trim %} aa {% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% set s = 'in' %}{{ s }}{% endwith %}{{ s }}{{ a }}
{% macro f(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}{{ n }}]{% endmacro %}{{ f(1) }}{{ f(1, c='y') }}{{ f(b=5, a=1) }}{{ f() }}{{ f(1)|upper }}{{ f(*[1, 2], **{'c': 3}) }}{{ f.name }}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{% endmacro %}{{ f(q=1) }}
{% macro f(a) %}{{ a.x }}{% endmacro %}{{ f() }}
{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * (fact(k - 1)|int) }}{% endif %}{% endmacro %}{{ fact(6) }}
{% macro r(k) %}{{ r(k + 1) }}{% endmacro %}{{ r(0) }}
{% macro w(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call w('b') %}in {{ n }}{% endcall %}{% macro l2(x) %}{% for i in x %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) l2(l) %}({{ i }}){% endcall %}
{% macro g() %}{% set zz = 1 %}{{ late }}{% endmacro %}{% set late = 'L' %}{{ g() }}{{ zz }}
{% set x = 1 %}{% macro g() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ g() }}{{ x }}
{% raw %}{{ not }} {% if %}{% endraw %}|{%- raw -%}  x  {%- endraw -%}  y
{# comment #}a{#- c -#} b {#+ x +#}
  {# own line #}
c
  {% if t %}
    yes
  {% endif %}
after
  {{ n }}
  {{- n -}}
  x
{%- if t -%}
   y
{%- endif %}

z
  {%+ if t %}p{% endif +%}
q
a {% if t %}
b {% endif %}   
c
{% for x in l -%}
  {{ x }}
{%- endfor %}.
{{ raise_exception('No: ' ~ n) }}
{{ strftime_now('%Y-%m-%d %d %b %Y %H:%M %A') }}
{{ dict(a=1, b=2) }} {{ dict({'a': 1}, b=2) }} {{ dict([('a', 1)]) }} {{ {'a': 1, 'a': 2} }} {{ {1: 'x', 'y': [1]}[1] }} {{ {} }}
{{ {[1]: 2} }}
{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}
{{ undefinedfn() }}
{{ n() }}
{{ [1, 2, 3][0] }} {{ (1, 2)[1] }} {{ {'a': {'b': 2}}.a.b }} {{ 'abc'[1] }} {{ [[1]][0][0] }} {{ l|first + 1 }} {{ (l|sort)[0] }} {{ l|length - 1 }} {{ l|length > 2 and 'x' }}
{{ 1 if false }}|{{ (1 if false) ~ 'x' }}|{{ 'a' if t else missing.x }}
{% if missing %}a{% else %}b{% endif %}{% if el %}a{% elif ed %}b{% elif 0.0 %}c{% elif ' ' %}d{% endif %}
{% if messages[0].role == 'system' %}{% set sys = messages[0].content %}{% set loop_messages = messages[1:] %}{% endif %}{{ sys }}{% for m in loop_messages %}{% if m.content is string %}{{ m.content|trim }}{% else %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}
{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}x{% endif %}{% if '</think>' in m.content and m.content is string %}{{ m.content.split('</think>')[-1].lstrip('\n') }}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{% endif %}{% endfor %}
{{ messages|map(attribute='role')|join(',') }} {{ messages|map(attribute='content.0')|list|length }} {{ d|attr('items') is callable }}
{% generation %}x{% endgeneration %}
{% include 'x' %}
{% nope %}
{% if t %}
{% endif %}
{% for x in %}{% endfor %}
{{ 1 +
{{ 'abc
{{ (1 }}
{{ [1, 2 }}
{% raw %} x
{# never
{% break %}
{{ a b }}
{% set x is lower %}ABC{% endset %}{{ x }}
{% set x | upper is lower %}abc{% endset %}{{ x }}
{% filter upper is lower %}ABC{% endfilter %}
{% filter upper()() %}ABC{% endfilter %}
{% set x | upper() | replace('B', '-') %}abc{% endset %}{{ x }}{% filter replace('a', 'b') | upper() %}a{% endfilter %}
{{ dict(**d, **d) }}
{{ range(*l, *l) }}
{{ dict(**d, x=1) }}
{{ dict(**d, *el) }}
{{ dict(x=1, d) }}
{{ range(*[1], 2) }}
{{ l|join(**ed, **ed) }}
{% if false %}{{ n is divisibleby(*l, *l) }}{% endif %}
{{ dict(x=1, *el, **d) }} {{ range(1, *[2, 3], **ed)|list }} {{ dict(*el, x=1, **ed) }} {{ range(*[3], )|list }}
{{ }}
{% set %}
{% set 1 = 2 %}
{% macro %}{% endmacro %}
{{ 1 | }}
{{ x is }}
{{ f( }}
{% endif %}
{{ '\x4' }}
{{ {'a': 1, } }} {{ [1, 2, ] }} {{ (1, ) }} {{ dict(a=1, ) }}
{% if t: %}a{% endif %}
{{ t.x is defined }}{{ 5.x is defined }}
{% print n %} {% block q %}in{% endblock q %} {% autoescape false %}a{% endautoescape %}
{{ 9999999999 * 9999 }} {{ 2 ** 62 }} {{ -9223372036854775807 }}
{{ true }}{{ True }}{{ false }}{{ False }}{{ none }}{{ None }}
{% set t = namespace(x=[]) %}{% for i in l %}{% set t.x = t.x + [i] %}{% endfor %}{{ t.x }}
{% for m in messages recursive %}{{ m.role }}{% endfor %}
{% for x in [[1, [[2, []], [3, [[4, []]]]]], [5, []]] recursive %}{{ loop.depth0 }}.{{ loop.index }}:{{ x[0] }}{% if x[1] %}({{ loop(x[1]) }}){% endif %}{% else %}none{% endfor %}
{% for x in [1, 2] recursive %}{{ x }}{{ loop([]) if x == 2 }}{% else %}empty{% endfor %}
{% for k, v in d.items() recursive %}{{ k }}{% if v is mapping %}[{{ loop(v.items()) }}]{% endif %}{% endfor %}
{% for x in l if x > 1 recursive %}{{ x }}{{ loop([x - 1]) if loop.depth < 3 }}{% endfor %}
{% set o = 9 %}{% for x in [1] recursive %}{{ o }}{% set o = 1 %}{{ o }}{{ loop([1]) if loop.first and loop.depth == 1 }}{% endfor %}{{ o }}
{% for x in [1, 2] %}{{ loop([3]) }}{% endfor %}
{% for x in [1] recursive %}{{ loop() }}{% endfor %}
{% for x in [1] recursive %}{{ loop(l, 2) }}{% endfor %}
{% for x in [1] recursive %}{{ loop(5) }}{% endfor %}
{% for x in [1, 2, 3] recursive %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% macro f(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }}{{ f(1, 3, 4, 5) }}{{ f(b=1, a=2, c=3, d=4) }}
{% macro f() %}{{ varargs|join('-') }}{% endmacro %}{{ f(1, 2, 3) }}{{ f(1, x=2) }}
{% macro f() %}{{ kwargs.x }}{% endmacro %}{{ f(x=2) }}{{ f(1) }}
{% macro f(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ f(1, a=2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{% macro f(varargs) %}{{ varargs }}{% endmacro %}{{ f(1) }}
{% macro f() %}{% for v in varargs %}{{ v }}{% endfor %}{% for k, v in kwargs.items() %}{{ k }}={{ v }}{% endfor %}{{ caller() }}{% endmacro %}{% call f(1, 2, a=3) %}in{% endcall %}
{% macro f() %}{{ caller(1, 2, x=3) }}{% endmacro %}{% call(a) f() %}{{ a }}{{ varargs }}{{ kwargs }}{% endcall %}
{{ varargs }}{{ kwargs is defined }}
{{ 'one two three four'|truncate(9) }}|{{ 'one two three four'|truncate(9, leeway=0) }}|{{ 'one two three four'|truncate(9, true) }}|{{ 'one two three four'|truncate(9, end='') }}
{{ 'onetwothreefourfive'|truncate(9) }}|{{ 'a b'|truncate(3, leeway=0) }}|{{ 'a bcd'|truncate(3, leeway=0) }}|{{ us|truncate(6, true, '…', 0) }}|{{ ''|truncate }}|{{ (s * 40)|truncate }}
{{ 'abcdefghij'|truncate(2) }}
{{ 'abcdefghij'|truncate(5, leeway=-1) }}
{{ l|truncate }}{{ missing|truncate }}
{{ n|truncate }}
{{ l | map("abs") | list }}{{ l|map('default', 5)|list }}{{ ['a','b']|map('upper')|map('lower')|list }}
{{ "line1
line2" }}
{{ '{% if %}' }}{{ "{{ x }}" }}{{ '#}' }}{{ {'a': {'b': 1}}}}
"""
# A snippet that says {% generation %} needs transformers' extension; the others are Jinja2's own.
MULTI = "{# comment #}a"


def snippets():
    lines, out, i = SNIPPETS.strip("\n").split("\n"), [], 0
    while i < len(lines):
        if lines[i].startswith(MULTI):
            end = next(k for k in range(i, len(lines)) if lines[k].startswith("{%- endfor"))
            out.append("\n".join(lines[i:end + 1]) + "\n")
            i = end + 1
        elif lines[i].endswith(("\\",)) or lines[i] == '{{ "line1':
            out.append(lines[i] + "\n" + lines[i + 1])
            i += 2
        elif lines[i] == "{% if t %}" and lines[i + 1] == "{% endif %}":
            out.append(lines[i])
            i += 1
        else:
            out.append(lines[i])
            i += 1
    return [s for s in out if "{% generation" not in s]


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    env.globals["raise_exception"] = fail
    env.globals["strftime_now"] = NOW.strftime
    return env


def reference(env, source, variables, answer):
    try:
        return env.from_string(source).render(**{"bos_token": "<BOS>", "eos_token": "<EOS>", "tools": None, "documents": None,
                                                 "add_generation_prompt": answer, **variables})
    except Exception as e:  # whatever Python calls it
        return e


def ours(quill, path, variables, answer):
    args = [quill, "template", "--chat-template-file", path, "--bos", "<BOS>", "--eos", "<EOS>", "--now", NOW.isoformat()]
    p = subprocess.run(args + ([] if answer else ["--no-generation-prompt"]), input=json.dumps(variables).encode(), capture_output=True, timeout=60)
    if p.returncode == 0:
        return p.stdout.decode()
    return ValueError(p.stderr.decode()) if p.returncode == 3 else SystemError(f"exit {p.returncode}: {p.stderr.decode()}")


def same(a, b):
    return a == b if isinstance(a, str) and isinstance(b, str) else isinstance(a, Exception) and isinstance(b, ValueError)


def conversations():
    u, a, s = (lambda t: {"role": "user", "content": t}), (lambda t: {"role": "assistant", "content": t}), (lambda t: {"role": "system", "content": t})
    call = {"role": "assistant", "content": "", "tool_calls": X["messages"][2]["tool_calls"]}
    tool = {"role": "tool", "content": "3", "name": "add", "tool_call_id": "abcdefghi"}
    plain = [[u("Hello")], [s("Be terse."), u("2+3?")], [u("Hi"), a("<think>\nx\n</think>\n\nHello!"), u(" more \n")], [u("a"), u("b")], [s("only")], []]
    for m in plain:
        yield {"messages": m}
    yield {"messages": [u("add 1 and 2"), call, tool, a("It is 3."), u("thanks")], "tools": X["tools"]}
    yield {"messages": [s("sys"), u("x")], "tools": X["tools"], "enable_thinking": False, "thinking": True}
    yield {"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}], "enable_thinking": True}


def mutations(source, rng):
    """Renamed variables, other spacing, dropped and doubled pieces: what nobody has fitted a template to."""
    words = sorted(set(re.findall(r"{%-? *set (\w+) *=", source)))
    renamed = source
    for w in words:
        renamed = re.sub(rf"(?<![\w'\".]){w}(?![\w'\"])", w + "_q", renamed)
    yield renamed
    yield source.replace("{%-", "{%").replace("-%}", "%}")
    yield source.replace("{%", "{%-").replace("{%--", "{%-")
    tags = [m.span() for m in re.finditer(r"{[{%].*?[}%]}", source, re.S)]
    for _ in range(3):
        a, b = rng.choice(tags)
        yield source[:a] + source[b:]  # mostly broken: both have to say so
        quoted = [m.span() for m in re.finditer(r"'[^'\n]*'", source)]
        if quoted:
            a, b = rng.choice(quoted)
            yield source[:a] + "'zz'" + source[b:]


def main(quill, folder=None):
    env, rng, bad, n = environment(), random.Random(7), 0, 0
    jobs = [("snippet", s, [X], (True,)) for s in snippets()]
    for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))) if folder else []:
        source = open(path, encoding="utf-8").read()
        jobs.append((os.path.basename(path), source, list(conversations()), (True, False)))
        jobs += [(os.path.basename(path) + " mutated", m, rng.sample(list(conversations()), 3), (True,)) for m in mutations(source, rng)]
    with tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8") as f:
        for name, source, variables, answers in jobs:
            f.seek(0)
            f.truncate()
            f.write(source)
            f.flush()
            for v in variables:
                for answer in answers:
                    want, got = reference(env, source, v, answer), ours(quill, f.name, v, answer)
                    n += 1
                    if not same(want, got):
                        bad += 1
                        print(f"{name}: {source if name == 'snippet' else list(v)}\n  jinja2 {want!r:.1200}\n  quill  {got!r:.1200}")
    print(f"{n} renders, {bad} differ")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
