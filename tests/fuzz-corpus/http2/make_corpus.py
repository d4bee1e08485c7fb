#!/usr/bin/env python3
"""Writes the seeds of http2_fuzz beside itself: short conversations of a gRPC client, one a file.

The first byte of each is the fuzzer's choice of how the bytes arrive (src/rpc/http2_fuzz.c).
"""
import gzip
import os
import struct
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    name, value = name.encode(), value.encode()
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers(path, extra=()):
    block = b"\x83\x86\x04" + bytes([len(path)]) + path.encode() + b"\x41\x01a"
    block += literal("te", "trailers") + literal("content-type", "application/grpc")
    return block + b"".join(literal(k, v) for k, v in extra)


def message(body, flag=0):
    return bytes([flag]) + struct.pack(">I", len(body)) + body


def request(stream, path, body, extra=(), flag=0):
    return frame(1, 4, stream, headers(path, extra)) + frame(0, 1, stream, message(body, flag))


def on_trunk(*messages):
    return b''.join(bytes([len(m)]) + m for m in messages)


def call(slot, path, body=b''):
    return struct.pack('<IB', slot, len(path)) + path + body


def write(name, how, conversation):
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(bytes([how]) + conversation)


write('echo',31,request(1,'/t/E',b'hello'))
write('fail',31,request(1,'/t/F',b'h\xc3\xa9 %'))
write('hold_rst',31,request(1,'/t/H',b'x')+frame(3,0,1,b'\0\0\0\x08'))
write('take',31,request(1,'/t/T',b'y'*6000)+request(3,'/t/T',b'z'*9000))
write('take_small_reads',16+8,request(1,'/t/T',b'y'*6000)+request(3,'/t/E',b'z'*700))
write('gzip',31,request(1,'/t/E',gzip.compress(b'a'*3000),(('grpc-encoding','gzip'),),1))
write('deflate',31,request(1,'/t/T',zlib.compress(b'a'*3000),(('grpc-encoding','deflate'),),1))
write('timeout',31,request(1,'/t/H',b'',(('grpc-timeout','1n'),))+request(3,'/t/E',b'',(('grpc-timeout','1x'),)))
write('unknown',31,request(1,'/t/Q',b''))
write('get',31,frame(1,5,1,b'\x82\x86\x84\x41\x01a'))
write('pings',31+64,b''.join(frame(6,0,0,b'12345678') for _ in range(5))+request(1,'/t/E',b'a')+request(3,'/t/E',b'b'))
write('settings',31,frame(4,0,0,struct.pack('>HI',4,10)+struct.pack('>HI',5,20000))+request(1,'/t/E',b'q'*100)+frame(8,0,1,b'\0\0\1\0'))
write('padded',31,frame(1,4,1,headers('/t/T'))+frame(0,9,1,bytes([3])+message(b'y'*5000)+b'\0\0\0'))
write('cont',31,frame(1,0,1,headers('/t/E')[:10])+frame(9,4,1,headers('/t/E')[10:])+frame(0,1,1,message(b'')))
write('two',31,frame(1,4,1,headers('/t/E'))+frame(0,1,1,message(b'a')+message(b'b')))
write('goaway',31+32,request(1,'/t/E',b'a'*300)+frame(7,0,0,b'\0'*8)+request(3,'/t/E',b'b'))
write('raw',15,b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'+frame(4,0,0,b'')+request(1,'/t/E',b'a'))
write('http1',15,b'GET / HTTP/1.1\r\nHost: a\r\n\r\n')
write('trailers',31,frame(1,4,1,headers('/t/E'))+frame(0,0,1,message(b'abc'))+frame(1,5,1,literal('x','y')))
write('stray',31,request(1,'/t/E',b'a')+frame(0,1,1,b'abc')+frame(1,5,1,headers('/t/E')))
write('trunk',31+128,on_trunk(call(0,b'/t/E',b'abc'),call(1,b'/t/H'),call(2,b'/t/F',b'why'),call(3,b'/t/T',b'x'),call(1,b''),call(4,b'/t/Q'),call(0,b'/t/H'),call(5,b'')))
write('trunk_bad',31+128+32,on_trunk(call(0,b'/t/H'),call(1,b'/t/E',b'a'),call(0,b'/t/E')))
write('trunk_away',31+128+64,on_trunk(call(0,b'/t/H'),call(0,b''),b'short'))
