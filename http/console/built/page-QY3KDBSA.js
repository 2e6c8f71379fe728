import{a,b,c,d}from"./chunk-43SVSZAK.js";import"./chunk-QF2W2XYY.js";import"./chunk-ZXK6C35R.js";export{c as Blocked,b as KeyOf,a as LimitsPage,d as Taken};
